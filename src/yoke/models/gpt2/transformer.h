// GPT-2's building blocks, under Hugging Face's names.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "yoke/compute/layers.h"

namespace yoke::models {

// Hugging Face's Conv1D: a linear layer whose weight is [in, out].
class Projection : public torch::nn::Module {
 public:
  Projection(int64_t in, int64_t out);
  torch::Tensor forward(const torch::Tensor& x) const;
  // residual + dropout(forward(x)).
  torch::Tensor add_to(const torch::Tensor& residual, const torch::Tensor& x, double dropout) const;

  torch::Tensor weight;
  torch::Tensor bias;
};

class LayerNorm : public torch::nn::Module {
 public:
  explicit LayerNorm(int64_t width);
  torch::Tensor forward(const torch::Tensor& x) const;
  // x plus `added` (or undefined), and the norm of the sum.
  compute::Normed add(const torch::Tensor& x, const torch::Tensor& added) const;

  torch::Tensor weight;
  torch::Tensor bias;
};

// Keys and values of a layer for the tokens seen so far.
struct SeenTokens {
  torch::Tensor keys, values;  // [B, heads, room, width / heads]; undefined: none seen
  int64_t count = 0;
};

// One layer: causal attention and a two-layer perceptron, each after a norm and with a residual connection.
class Layer : public torch::nn::Module {
 public:
  // Requires: heads divides width.
  Layer(int64_t width, int64_t heads, double dropout);
  torch::Tensor forward(const torch::Tensor& x) const;  // [B, T, width]
  // forward() of the tokens after `seen`, which they join: one token, or the first ones. `room`: tokens that
  // `seen` may hold.
  torch::Tensor extend(const torch::Tensor& x, SeenTokens& seen, int64_t room) const;

 private:
  int64_t own_heads() const;
  torch::Tensor attend(const torch::Tensor& x) const;
  torch::Tensor attend_after(const torch::Tensor& x, SeenTokens& seen, int64_t room) const;
  torch::Tensor after_attention(const compute::Normed& first, const torch::Tensor& attended) const;

  int64_t head_width_;
  double dropout_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<Projection> c_attn_, attn_proj_, c_fc_, mlp_proj_;
};

}  // namespace yoke::models
