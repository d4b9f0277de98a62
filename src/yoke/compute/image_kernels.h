// CUDA kernels for image networks: batch norm, max pooling, convolution with bias and ReLU.
//
// For fp32, bf16 and fp16 with channels last, a multiple of 8 channels. Each `can_` says whether its function
// supports these tensors; the functions are differentiable (once) and deterministic, except for cuDNN's
// choice of a convolution algorithm.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "yoke/compute/layers.h"
#include "yoke/kernels/pool.h"

namespace yoke::compute::cuda {

// `residual` may be undefined.
bool can_batch_norm(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x,
                    const torch::Tensor& residual);
// Training: statistics of this batch; momentum 0 leaves the running ones unchanged. Evaluation: the running
// ones.
torch::Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x,
                         const torch::Tensor& residual, bool relu, double momentum);

bool can_max_pool(const torch::Tensor& x, const kernels::PoolShape& shape);
// With relu: of relu(x).
torch::Tensor max_pool(const torch::Tensor& x, const kernels::PoolShape& shape, bool relu);

bool can_conv_relu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);
torch::Tensor conv_relu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                        const ConvShape& shape);
// max_pool of conv_relu: bias and ReLU are applied after the maximum, to fewer values.
torch::Tensor conv_relu_max_pool(const torch::Tensor& x, const torch::Tensor& weight,
                                 const torch::Tensor& bias, const ConvShape& shape,
                                 const kernels::PoolShape& pool);

}  // namespace yoke::compute::cuda
