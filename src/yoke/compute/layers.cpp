// The layers that are LibTorch's operators as they are; the others have files of their own.
#include "yoke/compute/layers.h"

namespace yoke::compute {

torch::Tensor relu(const torch::Tensor& x) {
  return at::relu(x);
}

torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                         double eps) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               double dropout) {
  return at::scaled_dot_product_attention(q, k, v, {}, dropout, /*is_causal=*/true);
}

}  // namespace yoke::compute
