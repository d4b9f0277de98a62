#include "yoke/models/model.h"

#include <unordered_set>

namespace yoke::models {

Tensors Model::forward(const Tensors& inputs) const {
  Tensors values = inputs;
  for (const Block& block : blocks) values = block.forward(values);
  return values;
}

int64_t Model::parameter_count() const {
  std::unordered_set<const void*> seen;
  int64_t count = 0;
  for (const torch::Tensor& parameter : module->parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  }
  return count;
}

}  // namespace yoke::models
