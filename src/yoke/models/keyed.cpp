#include "yoke/models/keyed.h"

#include <torch/nn/modules/embedding.h>

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::models {
namespace {

struct Rows {
  bool found = false;
  bool changes = false;  // the layer itself writes to rows
};

template <class Layer>
Rows sparse_rows(const torch::nn::Module& module) {
  const auto* layer = dynamic_cast<const Layer*>(&module);
  if (layer == nullptr || !layer->options.sparse()) return {};
  return {true, layer->options.max_norm().has_value()};
}

void add_features(const Model& model, std::vector<KeyedParameter>& keyed) {
  if (model.sample.kind != SampleKind::kSparse || model.sample.shape.empty()) return;
  for (const auto& item : model.module->named_parameters()) {
    const torch::Tensor& tensor = item.value();
    if (tensor.dim() == 2 && tensor.size(0) == model.sample.shape[0])
      keyed.push_back({item.key(), tensor, 0});
  }
}

void add_embeddings(const Model& model, std::vector<KeyedParameter>& keyed) {
  for (const auto& item : model.module->named_modules("", /*include_self=*/false)) {
    Rows rows = sparse_rows<torch::nn::EmbeddingImpl>(*item.value());
    if (!rows.found) rows = sparse_rows<torch::nn::EmbeddingBagImpl>(*item.value());
    const torch::Tensor* weight = rows.found ? item.value()->named_parameters(false).find("weight") : nullptr;
    if (weight == nullptr || !weight->requires_grad()) continue;
    if (rows.changes)
      throw ConfigError(
          "embedding '{}' has max_norm, which changes rows in the forward pass: servers would not know. Set "
          "ps.sparse = \"off\".",
          item.key());
    keyed.push_back({item.key() + ".weight", *weight, -1, true});
  }
}

}  // namespace

std::vector<KeyedParameter> keyed_parameters(const Model& model) {
  std::vector<KeyedParameter> all, distinct;
  add_features(model, all);
  add_embeddings(model, all);
  for (KeyedParameter& one : all) {
    const auto same = std::find_if(distinct.begin(), distinct.end(), [&](const KeyedParameter& other) {
      return other.tensor.is_same(one.tensor);
    });
    if (same == distinct.end())
      distinct.push_back(std::move(one));
    else
      same->sparse_gradient |= one.sparse_gradient;
  }
  return distinct;
}

}  // namespace yoke::models
