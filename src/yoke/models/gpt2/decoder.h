// GPT-2 token by token: keys and values of the tokens before are kept, so that each costs one token's work.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "yoke/models/common/layers.h"
#include "yoke/models/gpt2/transformer.h"
#include "yoke/models/model.h"

namespace yoke::models {

// Not thread-safe.
class Gpt2Decoder {
 public:
  // Shares the modules of `model`, made by make_gpt2() and in evaluation mode. Throws ConfigError for others.
  explicit Gpt2Decoder(const Model& model);

  int64_t room() const { return positions_; }  // tokens it can see
  int64_t count() const { return count_; }     // tokens it has seen

  // Adds tokens and returns the logits after the last one, [vocabulary]: those of Model::forward(). Requires
  // room for them, and one token unless it has seen none.
  torch::Tensor add(std::span<const int64_t> tokens);
  void forget();

 private:
  std::shared_ptr<Embedding> tokens_, places_;
  std::vector<std::shared_ptr<Layer>> layers_;
  Block head_;
  std::vector<SeenTokens> seen_;  // of each layer
  int64_t positions_ = 0, count_ = 0;
};

}  // namespace yoke::models
