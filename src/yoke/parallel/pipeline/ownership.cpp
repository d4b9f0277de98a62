#include "yoke/parallel/pipeline/ownership.h"

#include <torch/utils.h>

#include <algorithm>
#include <unordered_map>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

struct Users {
  std::vector<int> stages;
  int chunk = 0;  // of the first of them
};
using UsersOf = std::unordered_map<const void*, Users>;

// Virtual stages come in order.
void note(UsersOf& users, const torch::Tensor& tensor, int virtual_stage, int stages) {
  int stage = virtual_stage % stages;
  auto [found, added] = users.try_emplace(tensor.unsafeGetTensorImpl());
  if (added) found->second.chunk = virtual_stage / stages;
  std::vector<int>& list = found->second.stages;
  if (std::find(list.begin(), list.end(), stage) == list.end()) list.push_back(stage);
}

UsersOf users_of_tensors(const models::Model& model, const PipelineLayout& layout) {
  UsersOf users;
  for (size_t part = 0; part < layout.blocks.size(); ++part) {
    auto add = [&](const torch::Tensor& tensor) {
      note(users, tensor, static_cast<int>(part), layout.request.stages);
    };
    for (size_t block = layout.blocks[part].first; block < layout.blocks[part].end; ++block) {
      for (const auto& module : model.blocks[block].modules) {
        for (const torch::Tensor& tensor : module->parameters()) add(tensor);
        for (const torch::Tensor& tensor : module->buffers()) add(tensor);
      }
    }
  }
  return users;
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
  UsersOf users = users_of_tensors(model, layout);
  std::vector<OwnedTensor> tensors;
  auto add = [&](const std::string& name, const torch::Tensor& tensor, bool is_parameter) {
    auto found = users.find(tensor.unsafeGetTensorImpl());
    if (found == users.end())
      throw ConfigError("{}: tensor '{}' belongs to no block: it cannot be given to a stage.", model.name,
                        name);
    OwnedTensor owned{name, tensor, is_parameter, found->second.stages, found->second.chunk};
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
