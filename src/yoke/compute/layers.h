// The layer operations of models: LibTorch's results, by the fastest path on this device.
//
// Equal to torch::nn::functional up to rounding; differentiable; autocast applies. Models use torch::nn
// modules to own parameters and these functions to compute with them.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <array>
#include <cstdint>

namespace yoke::compute {

struct ConvShape {
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};
  int64_t groups = 1;
};

// x [N, C, H, W], weight [O, C / groups, h, w], bias [O] or undefined.
torch::Tensor conv2d(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     const ConvShape& shape = {});

// conv2d followed by ReLU, and by max pooling without padding.
torch::Tensor conv2d_relu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                          const ConvShape& shape = {});
torch::Tensor conv2d_relu_max_pool2d(const torch::Tensor& x, const torch::Tensor& weight,
                                     const torch::Tensor& bias, const ConvShape& shape, int64_t kernel,
                                     int64_t stride);

// x [.., in], weight [out, in] (torch::nn::Linear), bias [out] or undefined.
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// linear followed by ReLU, or by GELU with the tanh approximation: one pass over the result.
torch::Tensor linear_relu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);
torch::Tensor linear_gelu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

// x [.., in], weight [in, out] as GPT-2's Conv1D stores it, bias [out].
torch::Tensor linear_transposed(const torch::Tensor& x, const torch::Tensor& weight,
                                const torch::Tensor& bias);
torch::Tensor linear_transposed_gelu(const torch::Tensor& x, const torch::Tensor& weight,
                                     const torch::Tensor& bias);
// linear_transposed plus `added`, a residual of the result's shape.
torch::Tensor linear_transposed_add(const torch::Tensor& x, const torch::Tensor& weight,
                                    const torch::Tensor& bias, const torch::Tensor& added);

torch::Tensor relu(const torch::Tensor& x);

// GELU with the tanh approximation, as GPT-2 uses it.
torch::Tensor gelu_tanh(const torch::Tensor& x);

// Normalises over the last dim.
torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         double eps);

// A residual stream x plus `added` (or undefined), and the norm of the sum: their gradients are combined in
// one pass.
struct Normed {
  torch::Tensor sum, y;
};
Normed add_layer_norm(const torch::Tensor& x, const torch::Tensor& added, const torch::Tensor& weight,
                      const torch::Tensor& bias, double eps);

// Packed queries, keys and values [B, T, 3 * width] as [B, heads, T, width / heads] each.
std::array<torch::Tensor, 3> split_heads(const torch::Tensor& packed, int64_t heads);
// split_heads of linear_transposed.
std::array<torch::Tensor, 3> linear_split_heads(const torch::Tensor& x, const torch::Tensor& weight,
                                                const torch::Tensor& bias, int64_t heads);

// torch::nn::BatchNorm2d's forward, which does not update the running statistics during the second run of
// yoke::recompute. On CUDA its batch counter is left to batch_counters(): one kernel for all layers instead
// of one each.
torch::Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x);

// The batch counters of all BatchNorm layers on CUDA: the training loop adds 1 to them per forward pass.
std::vector<torch::Tensor> batch_counters(const torch::nn::Module& module);

// batch_norm, then the addition of a residual of the same shape, then ReLU.
torch::Tensor batch_norm_relu(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x);
torch::Tensor batch_norm_add_relu(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x,
                                  const torch::Tensor& residual);

torch::Tensor max_pool2d(const torch::Tensor& x, int64_t kernel, int64_t stride, int64_t padding = 0,
                         bool ceil_mode = false);

// max_pool2d of relu(x), in one pass.
torch::Tensor relu_max_pool2d(const torch::Tensor& x, int64_t kernel, int64_t stride, int64_t padding = 0,
                              bool ceil_mode = false);

// Causal attention of q, k, v [B, heads, T, d]; returns the same shape.
torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               double dropout);

// Mean cross entropy of logits [.., classes] against int64 targets [..].
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& target);

}  // namespace yoke::compute
