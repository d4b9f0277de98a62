// The layers that are plain LibTorch operators; the others have their own files.
#include "yoke/compute/layers.h"

#include "yoke/compute/interception.h"

#include "yoke/compute/token_kernels.h"

namespace yoke::compute {

torch::Tensor relu(const torch::Tensor& x) {
  return at::relu(x);
}

torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         double eps) {
  if (cuda::can_add_layer_norm(x, {}, weight, bias)) return cuda::add_layer_norm(x, {}, weight, bias, eps).y;
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

Normed add_layer_norm(const torch::Tensor& x, const torch::Tensor& added, const torch::Tensor& weight,
                      const torch::Tensor& bias, double eps) {
  if (cuda::can_add_layer_norm(x, added, weight, bias))
    return cuda::add_layer_norm(x, added, weight, bias, eps);
  torch::Tensor sum = added.defined() ? x + added : x;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

std::array<torch::Tensor, 3> split_heads(const torch::Tensor& packed, int64_t heads) {
  if (cuda::can_split_heads(packed, heads)) return cuda::split_heads(packed, heads);
  int64_t width = packed.size(2) / 3;
  std::vector<torch::Tensor> parts = packed.split(width, /*dim=*/2);
  auto part = [&](size_t i) {
    return parts[i].view({packed.size(0), packed.size(1), heads, width / heads}).transpose(1, 2);
  };
  return {part(0), part(1), part(2)};
}

std::array<torch::Tensor, 3> linear_split_heads(const torch::Tensor& x, const torch::Tensor& weight,
                                                const torch::Tensor& bias, int64_t heads) {
  if (!is_intercepted(weight) && cuda::can_affine_heads(x, weight, bias, heads))
    return cuda::affine_heads(x, weight, bias, heads);
  return split_heads(linear_transposed(x, weight, bias), heads);
}

torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               double dropout) {
  return at::scaled_dot_product_attention(q, k, v, {}, dropout, /*is_causal=*/true);
}

}  // namespace yoke::compute
