// Layers of language models by our own CUDA kernels: layer norm with residuals, linear with GELU, packed
// heads.
//
// For fp32, bf16 and fp16, widths a multiple of 8, outside of autocast. Each `can_` says whether its function
// takes these tensors; the functions are differentiable (once) and give the same bits every time.
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
// GELU of x [.., in] times weight [in, out] plus bias.
torch::Tensor affine_gelu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// x [rows, columns] to the sum of its rows, without a gradient.
bool can_sum_rows(const torch::Tensor& x);
torch::Tensor sum_rows(const torch::Tensor& x);

bool can_split_heads(const torch::Tensor& packed, int64_t heads);
std::array<torch::Tensor, 3> split_heads(const torch::Tensor& packed, int64_t heads);

}  // namespace yoke::compute::cuda
