// When our own CPU kernels may take over from LibTorch's operators.
#pragma once

#include <torch/types.h>

#include "yoke/base/error.h"

namespace yoke::compute {

// fp32 on the CPU, in strided memory, and no autocast that would compute in another format.
bool plain_float(const torch::Tensor& tensor);

template <class... Tensors>
bool plain_floats(const Tensors&... tensors) {
  return (plain_float(tensors) && ...);
}

// How an image batch [N, C, H, W] lies in memory. What is both (one channel, or one pixel) counts as kPlanes.
enum class ImageFormat { kPlanes, kPixels, kOther };
ImageFormat image_format(const torch::Tensor& x);

// For backward functions of our kernels, which LibTorch cannot differentiate again.
void require_first_derivative(const char* what);

}  // namespace yoke::compute
