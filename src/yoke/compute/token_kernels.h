// CUDA kernels for language models: layer norm with residuals, linear with GELU, packed heads.
//
// For fp32, bf16 and fp16, widths a multiple of 8, outside autocast. Each `can_` says whether its function
// supports these tensors; the functions are differentiable (once) and deterministic.
#pragma once

#include <torch/types.h>

#include <array>

#include "yoke/compute/layers.h"

namespace yoke::compute::cuda {

// `added` may be undefined.
bool can_add_layer_norm(const torch::Tensor& x, const torch::Tensor& added, const torch::Tensor& weight,
                        const torch::Tensor& bias);
Normed add_layer_norm(const torch::Tensor& x, const torch::Tensor& added, const torch::Tensor& weight,
                      const torch::Tensor& bias, double eps);

bool can_affine_gelu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);
// GELU of x [.., in] * weight [in, out] + bias.
torch::Tensor affine_gelu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// affine_gelu of x with `up` and `up_bias`, times `down`, plus `down_bias`, plus `added` [.., out].
struct MlpWeights {
  torch::Tensor up, up_bias, down, down_bias;
};
bool can_mlp(const torch::Tensor& x, const MlpWeights& weights, const torch::Tensor& added);
torch::Tensor mlp(const torch::Tensor& x, const MlpWeights& weights, const torch::Tensor& added);

// Sum of the rows of x [rows, columns]. Not differentiable.
bool can_sum_rows(const torch::Tensor& x);
torch::Tensor sum_rows(const torch::Tensor& x);

bool can_split_heads(const torch::Tensor& packed, int64_t heads);
std::array<torch::Tensor, 3> split_heads(const torch::Tensor& packed, int64_t heads);

// split_heads of x [B, T, in] * weight [in, 3 * width] + bias: gradients are packed and summed in one pass.
bool can_affine_heads(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                      int64_t heads);
std::array<torch::Tensor, 3> affine_heads(const torch::Tensor& x, const torch::Tensor& weight,
                                          const torch::Tensor& bias, int64_t heads);

}  // namespace yoke::compute::cuda
