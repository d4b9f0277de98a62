// The CPU convolution paths (conv_path.h). Internal to compute/: no autograd, fp32.
#pragma once

#include <torch/types.h>

#include "yoke/compute/conv_path.h"
#include "yoke/compute/layers.h"

namespace yoke::compute {

struct ConvGradients {
  torch::Tensor x, weight, bias;  // undefined if not requested
};
using GradientMask = std::array<bool, 3>;  // x, weight, bias

torch::Tensor conv_channels_last(const torch::Tensor& x, const torch::Tensor& weight,
                                 const torch::Tensor& bias, const ConvShape& shape);
ConvGradients conv_channels_last_backward(const torch::Tensor& grad_y, const torch::Tensor& x,
                                          const torch::Tensor& weight, const ConvShape& shape,
                                          GradientMask mask);

// Stride 1, padding smaller than the kernel, few weights.
bool conv_direct_possible(const torch::Tensor& x, const torch::Tensor& weight, const ConvShape& shape);
torch::Tensor conv_direct(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                          const ConvShape& shape);
ConvGradients conv_direct_backward(const torch::Tensor& grad_y, const torch::Tensor& x,
                                   const torch::Tensor& weight, const ConvShape& shape, GradientMask mask);

}  // namespace yoke::compute
