// Bounds the scratch memory in which cuDNN tries its algorithms for a convolution.
//
// LibTorch gives the search as much as the greediest algorithm wants, if the device has it: gigabytes that no
// later step needs, and that make up the peak. Here it gets what the peak so far leaves, or what the step
// will need anyway.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>

namespace yoke::compute::cuda {

// Runs `convolve`, one operator of LibTorch on the device of `x`, and bounds its memory if cuDNN searches:
// the first time with this `operation`. `least`: bytes it may have in any case, its results included. Where
// these do not fit, it runs again without a bound.
void within_search_room(const std::string& operation, const torch::Tensor& x, int64_t least,
                        const std::function<void()>& convolve);

}  // namespace yoke::compute::cuda
