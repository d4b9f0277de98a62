#include "yoke/parallel/common/owned_tensors.h"

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

UsersOf users_of_tensors(const std::vector<Modules>& used, int stages) {
  UsersOf users;
  for (size_t part = 0; part < used.size(); ++part) {
    for (const auto& module : used[part]) {
      for (const torch::Tensor& one : module->parameters()) note(users, one, static_cast<int>(part), stages);
      for (const torch::Tensor& one : module->buffers()) note(users, one, static_cast<int>(part), stages);
    }
  }
  return users;
}

}  // namespace

bool OwnedTensor::held_by(int stage) const {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

std::vector<OwnedTensor> owned_tensors(const models::Model& model, const std::vector<Modules>& used,
                                       int stages) {
  UsersOf users = users_of_tensors(used, stages);
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

std::vector<optim::NamedTensor> held_parameters(const std::vector<OwnedTensor>& tensors, int stage) {
  std::vector<optim::NamedTensor> held;
  for (const OwnedTensor& one : tensors)
    if (one.is_parameter && one.held_by(stage)) held.emplace_back(one.name, one.tensor);
  return held;
}

std::vector<optim::NamedTensor> trained_parameters(const std::vector<OwnedTensor>& tensors, int stage) {
  std::vector<optim::NamedTensor> trained;
  for (const OwnedTensor& one : tensors)
    if (one.is_trained() && one.held_by(stage)) trained.emplace_back(one.name, one.tensor);
  return trained;
}

}  // namespace yoke::parallel
