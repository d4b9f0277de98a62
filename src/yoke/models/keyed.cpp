#include "yoke/models/keyed.h"

namespace yoke::models {

std::vector<KeyedParameter> keyed_parameters(const Model& model) {
  std::vector<KeyedParameter> keyed;
  if (model.sample.kind != SampleKind::kSparse || model.sample.shape.empty()) return keyed;
  for (const auto& item : model.module->named_parameters()) {
    const torch::Tensor& tensor = item.value();
    if (tensor.dim() == 2 && tensor.size(0) == model.sample.shape[0])
      keyed.push_back({item.key(), tensor, 0});
  }
  return keyed;
}

}  // namespace yoke::models
