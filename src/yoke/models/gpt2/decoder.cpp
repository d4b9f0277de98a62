#include "yoke/models/gpt2/decoder.h"

#include "yoke/base/error.h"

namespace yoke::models {

Gpt2Decoder::Gpt2Decoder(const Model& model) {
  if (model.name != "gpt2") throw ConfigError("model {}: only gpt2 generates text.", model.name);
  YOKE_CHECK(!model.module->is_training(), "generating in training mode");
  tokens_ = std::dynamic_pointer_cast<Embedding>(model.blocks.front().modules.at(0));
  places_ = std::dynamic_pointer_cast<Embedding>(model.blocks.front().modules.at(1));
  for (size_t i = 1; i + 1 < model.blocks.size(); ++i)
    layers_.push_back(std::dynamic_pointer_cast<Layer>(model.blocks[i].modules.at(0)));
  head_ = model.blocks.back();
  positions_ = places_->weight.size(0);
  forget();
}

torch::Tensor Gpt2Decoder::add(std::span<const int64_t> tokens) {
  const auto added = static_cast<int64_t>(tokens.size());
  YOKE_CHECK(added > 0 && count_ + added <= positions_, "{} tokens after {} of {}", added, count_,
             positions_);
  torch::Tensor ids = torch::tensor(at::ArrayRef<int64_t>(tokens.data(), tokens.size()), torch::kLong)
                          .to(tokens_->weight.device())
                          .unsqueeze(0);
  torch::Tensor x = tokens_->forward(ids) + places_->weight.narrow(0, count_, added);
  for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i]->extend(x, seen_[i], positions_);
  count_ += added;
  return head_.forward({x.narrow(1, added - 1, 1)})[0].flatten();
}

void Gpt2Decoder::forget() {
  seen_.resize(layers_.size());
  for (SeenTokens& seen : seen_) seen.count = 0;
  count_ = 0;
}

}  // namespace yoke::models
