#include "yoke/parallel/pipeline/ownership.h"

#include <torch/utils.h>

#include <algorithm>
#include <unordered_map>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

using StagesOf = std::unordered_map<const void*, std::vector<int>>;

void note(StagesOf& stages, const torch::Tensor& tensor, int stage) {
  std::vector<int>& list = stages[tensor.unsafeGetTensorImpl()];
  if (std::find(list.begin(), list.end(), stage) == list.end()) list.push_back(stage);
}

StagesOf stages_of_tensors(const models::Model& model, const PipelineLayout& layout) {
  StagesOf stages;
  for (size_t part = 0; part < layout.blocks.size(); ++part) {
    int stage = static_cast<int>(part) % layout.request.stages;
    for (size_t block = layout.blocks[part].first; block < layout.blocks[part].end; ++block) {
      for (const auto& module : model.blocks[block].modules) {
        for (const torch::Tensor& tensor : module->parameters()) note(stages, tensor, stage);
        for (const torch::Tensor& tensor : module->buffers()) note(stages, tensor, stage);
      }
    }
  }
  return stages;
}

// How often a weight is used for one sample: places of an image, steps of a sequence.
double positions(const torch::Tensor& x) {
  if (x.dim() == 4) return static_cast<double>(x.size(2) * x.size(3));
  return x.dim() == 3 ? static_cast<double>(x.size(1)) : 1;
}

}  // namespace

bool OwnedTensor::held_by(int stage) const {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

std::vector<OwnedTensor> owned_tensors(const models::Model& model, const PipelineLayout& layout) {
  StagesOf stages = stages_of_tensors(model, layout);
  std::vector<OwnedTensor> tensors;
  auto add = [&](const std::string& name, const torch::Tensor& tensor, bool is_parameter) {
    auto found = stages.find(tensor.unsafeGetTensorImpl());
    if (found == stages.end())
      throw ConfigError("{}: tensor '{}' belongs to no block: it cannot be given to a stage.", model.name,
                        name);
    OwnedTensor owned{name, tensor, is_parameter, found->second};
    std::sort(owned.stages.begin(), owned.stages.end());
    tensors.push_back(std::move(owned));
  };
  for (const auto& item : model.module->named_parameters()) add(item.key(), item.value(), true);
  for (const auto& item : model.module->named_buffers()) add(item.key(), item.value(), false);
  return tensors;
}

void release_others(std::vector<OwnedTensor>& tensors, int stage) {
  torch::NoGradGuard no_grad;
  for (OwnedTensor& one : tensors) {
    if (one.held_by(stage)) continue;
    torch::Tensor nothing = torch::zeros({}, one.tensor.options().requires_grad(false));
    one.tensor.set_data(nothing.expand(one.tensor.sizes()));
  }
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
