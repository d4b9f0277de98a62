#include "yoke/parallel/placement/stage/ownership.h"

#include <torch/utils.h>

#include <algorithm>

namespace yoke::parallel {
namespace {

// How often a weight is used for one sample: places of an image, steps of a sequence.
double positions(const torch::Tensor& x) {
  if (x.dim() == 4) return static_cast<double>(x.size(2) * x.size(3));
  return x.dim() == 3 ? static_cast<double>(x.size(1)) : 1;
}

}  // namespace

std::vector<OwnedTensor> owned_tensors(const models::Model& model, const PipelineLayout& layout) {
  std::vector<Modules> used(layout.blocks.size());
  for (size_t part = 0; part < layout.blocks.size(); ++part)
    for (size_t block = layout.blocks[part].first; block < layout.blocks[part].end; ++block)
      used[part].insert(used[part].end(), model.blocks[block].modules.begin(),
                        model.blocks[block].modules.end());
  return owned_tensors(model, used, layout.request.stages);
}

std::vector<double> estimate_block_costs(const models::Model& model, const models::Tensors& inputs) {
  torch::NoGradGuard no_grad;
  bool was_training = model.module->is_training();
  model.module->eval();
  std::vector<double> costs;
  models::Tensors values = inputs;
  for (const models::Block& block : model.blocks) {
    bool looks_up = !values[0].is_floating_point();  // an embedding reads rows: its size costs nothing
    double uses = positions(values[0]);
    values = block.forward(values);
    uses = std::max(uses, positions(values[0]));
    double cost = static_cast<double>(values[0].numel());
    for (const auto& module : block.modules) {
      for (const torch::Tensor& weight : module->parameters())
        if (weight.dim() >= 2 && !looks_up) cost += uses * static_cast<double>(weight.numel());
    }
    costs.push_back(cost);
  }
  model.module->train(was_training);
  return costs;
}

}  // namespace yoke::parallel
