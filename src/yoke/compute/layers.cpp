#include "yoke/compute/layers.h"

#include "yoke/compute/recompute.h"

namespace yoke::compute {

torch::Tensor conv2d(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const ConvShape& shape) {
  return at::conv2d(x, weight, bias, shape.stride, shape.padding);
}

torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  return at::linear(x, weight, bias);
}

torch::Tensor linear_transposed(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  return at::linear(x, weight.t(), bias);
}

torch::Tensor relu(const torch::Tensor& x) { return at::relu(x); }

torch::Tensor gelu_tanh(const torch::Tensor& x) { return at::gelu(x, "tanh"); }

torch::Tensor layer_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double eps) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

torch::Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x) {
  bool training = norm.is_training();
  bool update = training && !in_recomputation();
  if (update && norm.num_batches_tracked.defined()) norm.num_batches_tracked.add_(1);
  // Momentum 0 multiplies the statistics by exactly 1 and adds exactly 0.
  double momentum = update ? norm.options.momentum().value_or(0.1) : 0.0;
  return at::batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, training, momentum,
                        norm.options.eps(), at::globalContext().userEnabledCuDNN());
}

torch::Tensor max_pool2d(const torch::Tensor& x, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
  return at::max_pool2d(x, {kernel, kernel}, {stride, stride}, {padding, padding}, {1, 1}, ceil_mode);
}

torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, double dropout) {
  return at::scaled_dot_product_attention(q, k, v, {}, dropout, /*is_causal=*/true);
}

torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& target) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), target.reshape({-1}));
}

}  // namespace yoke::compute
