// A strided convolution of few channels as an unstrided one of more: each block of stride x stride pixels
// becomes one pixel with the block's channels (space to depth).
//
// The first layer of image networks has three channels, which leaves tensor cores idle: cuDNN takes 3.0 ms
// for ResNet-50's at batch 256, forward and weight gradient, where memory bandwidth would allow 0.2.
#pragma once

#include <torch/types.h>

#include "yoke/compute/layers.h"

namespace yoke::compute {

// Whether it is possible and pays: channels last on CUDA, at most 4 channels, an input without gradient.
bool pays_in_blocks(const torch::Tensor& x, const torch::Tensor& weight, const ConvShape& shape);

struct Blocked {
  torch::Tensor x;       // [N, D, ..], channels last, D = stride * stride * channels rounded up to 8
  torch::Tensor weight;  // [O, D, ..], differentiable
};

// conv2d(x, weight, bias, shape) = conv2d(blocked.x, blocked.weight, bias). Requires equal strides > 1.
Blocked in_blocks(const torch::Tensor& x, const torch::Tensor& weight, const ConvShape& shape);

}  // namespace yoke::compute
