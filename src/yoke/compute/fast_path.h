// When our own CPU kernels may replace LibTorch's operators.
#pragma once

#include <torch/types.h>

#include "yoke/base/error.h"

namespace yoke::compute {

// fp32 on the CPU, strided, without an autocast to another type.
bool plain_float(const torch::Tensor& tensor);

template <class... Tensors>
bool plain_floats(const Tensors&... tensors) {
  return (plain_float(tensors) && ...);
}

// Memory format of an image batch [N, C, H, W]. If both apply (one channel, or one pixel): kPlanes.
enum class ImageFormat { kPlanes, kPixels, kOther };
ImageFormat image_format(const torch::Tensor& x);

// For backward functions of our kernels, which are not differentiable again: throws ConfigError with
// create_graph.
void require_first_derivative(const char* what);

}  // namespace yoke::compute
