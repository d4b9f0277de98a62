#include "yoke/models/gpt2/transformer.h"

#include "yoke/base/error.h"
#include "yoke/compute/mlp.h"
#include "yoke/models/common/layers.h"

namespace yoke::models {

constexpr double kNormEps = 1e-5;

namespace {

// [B, heads, T, d] to [B, T, heads * d].
torch::Tensor join_heads(const torch::Tensor& y) {
  return y.transpose(1, 2).reshape({y.size(0), y.size(2), -1});
}

}  // namespace

Projection::Projection(int64_t in, int64_t out) {
  weight = register_parameter("weight", torch::empty({in, out}));
  bias = register_parameter("bias", torch::empty({out}));
}

torch::Tensor Projection::forward(const torch::Tensor& x) const {
  return compute::linear_transposed(x, weight, bias);
}

torch::Tensor Projection::add_to(const torch::Tensor& residual, const torch::Tensor& x,
                                 double dropout) const {
  if (dropout == 0) return compute::linear_transposed_add(x, weight, bias, residual);
  return residual + at::dropout(forward(x), dropout, /*train=*/true);
}

LayerNorm::LayerNorm(int64_t width) {
  weight = register_parameter("weight", torch::empty({width}));
  bias = register_parameter("bias", torch::empty({width}));
}

torch::Tensor LayerNorm::forward(const torch::Tensor& x) const {
  return compute::layer_norm(x, weight, bias, kNormEps);
}

compute::Normed LayerNorm::add(const torch::Tensor& x, const torch::Tensor& added) const {
  return compute::add_layer_norm(x, added, weight, bias, kNormEps);
}

Layer::Layer(int64_t width, int64_t heads, double dropout) : head_width_(width / heads), dropout_(dropout) {
  ln_1_ = add<LayerNorm>(*this, "ln_1", width);
  c_attn_ = add<Projection>(*this, "attn.c_attn", width, 3 * width);
  attn_proj_ = add<Projection>(*this, "attn.c_proj", width, width);
  ln_2_ = add<LayerNorm>(*this, "ln_2", width);
  c_fc_ = add<Projection>(*this, "mlp.c_fc", width, 4 * width);
  mlp_proj_ = add<Projection>(*this, "mlp.c_proj", 4 * width, width);
}

torch::Tensor Layer::forward(const torch::Tensor& x) const {
  compute::Normed first = ln_1_->add(x, {});
  return after_attention(first, attend(first.y));
}

torch::Tensor Layer::extend(const torch::Tensor& x, SeenTokens& seen, int64_t room) const {
  compute::Normed first = ln_1_->add(x, {});
  return after_attention(first, attend_after(first.y, seen, room));
}

torch::Tensor Layer::after_attention(const compute::Normed& first, const torch::Tensor& attended) const {
  const double dropout = is_training() ? dropout_ : 0.0;
  // Without dropout the product adds the residual, otherwise the norm does.
  compute::Normed second =
      dropout == 0
          ? ln_2_->add(attn_proj_->add_to(first.sum, attended, dropout), {})
          : ln_2_->add(first.sum, at::dropout(attn_proj_->forward(attended), dropout, /*train=*/true));
  if (dropout == 0)
    return compute::mlp_add(second.y, {c_fc_->weight, c_fc_->bias, mlp_proj_->weight, mlp_proj_->bias},
                            second.sum);
  torch::Tensor inner = compute::linear_transposed_gelu(second.y, c_fc_->weight, c_fc_->bias);
  return mlp_proj_->add_to(second.sum, inner, dropout);
}

// As many heads as the weight has columns for: a rank may hold only some of them.
int64_t Layer::own_heads() const {
  return c_attn_->weight.size(1) / (3 * head_width_);
}

torch::Tensor Layer::attend(const torch::Tensor& x) const {
  auto [q, k, v] = compute::linear_split_heads(x, c_attn_->weight, c_attn_->bias, own_heads());
  return join_heads(compute::causal_attention(q, k, v, is_training() ? dropout_ : 0.0));
}

torch::Tensor Layer::attend_after(const torch::Tensor& x, SeenTokens& seen, int64_t room) const {
  auto [q, k, v] = compute::linear_split_heads(x, c_attn_->weight, c_attn_->bias, own_heads());
  const int64_t before = seen.count, added = k.size(2);
  YOKE_CHECK(before == 0 || added == 1, "{} tokens at once after {} others", added, before);
  YOKE_CHECK(before + added <= room, "{} tokens after {}, with room for {}", added, before, room);
  if (!seen.keys.defined()) {
    seen.keys = at::empty({k.size(0), k.size(1), room, k.size(3)}, k.options());
    seen.values = at::empty_like(seen.keys);
  }
  seen.keys.narrow(2, before, added).copy_(k);
  seen.values.narrow(2, before, added).copy_(v);
  seen.count += added;
  if (before == 0) return join_heads(compute::causal_attention(q, k, v, 0.0));
  return join_heads(at::scaled_dot_product_attention(q, seen.keys.narrow(2, 0, seen.count),
                                                     seen.values.narrow(2, 0, seen.count)));
}

}  // namespace yoke::models
