#include "yoke/parallel/pipeline/gather.h"

#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

using optim::NamedTensor;
using Named = std::vector<NamedTensor>;

constexpr int kGatherTag = 65534;

void send_list(const PipelineStage& stage, const Named& list) {
  nlohmann::json head = nlohmann::json::array();
  for (const auto& [name, tensor] : list)
    head.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
  std::string text = head.dump();
  torch::Device device = stage.tensors.at(0).tensor.device();
  torch::Tensor length = torch::tensor({static_cast<int64_t>(text.size())}, torch::kInt64).to(device);
  comm::send(stage.world, length, 0, kGatherTag, "gather: length");
  torch::Tensor bytes = torch::empty({length.cpu().item<int64_t>()}, torch::kUInt8);
  std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>());
  comm::send(stage.world, bytes.to(device), 0, kGatherTag, "gather: names");
  for (const auto& [name, tensor] : list)
    comm::send(stage.world, tensor.detach().to(device), 0, kGatherTag, name.substr(0, 40));
}

Named receive_list(const PipelineStage& stage, int rank) {
  torch::Device device = stage.tensors.at(0).tensor.device();
  torch::Tensor length = torch::zeros({1}, torch::kInt64).to(device);
  comm::receive(stage.world, length, rank, kGatherTag, "gather: length");
  torch::Tensor bytes = torch::empty({length.cpu().item<int64_t>()}, torch::kUInt8).to(device);
  comm::receive(stage.world, bytes, rank, kGatherTag, "gather: names");
  bytes = bytes.cpu();
  const auto* text = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  Named list;
  for (const auto& one : nlohmann::json::parse(text, text + bytes.numel())) {
    torch::Tensor tensor =
        torch::empty(one[2].get<std::vector<int64_t>>(),
                     torch::TensorOptions().dtype(static_cast<torch::ScalarType>(one[1].get<int>())));
    tensor = tensor.to(device);
    std::string name = one[0];
    comm::receive(stage.world, tensor, rank, kGatherTag, name.substr(0, 40));
    list.emplace_back(name, tensor.cpu());
  }
  return list;
}

// What each stage's first rank has, on rank 0, stage by stage.
std::vector<Named> gather_lists(const PipelineStage& stage, const Named& own) {
  torch::NoGradGuard no_grad;
  bool speaks = stage.place.replica == 0 && stage.place.copy == 0;
  std::vector<Named> lists;
  if (stage.world.rank() != 0) {
    if (speaks) send_list(stage, own);
    return lists;
  }
  lists.push_back(own);
  for (int other = 1, worker = 0; other < stage.layout.request.stages; ++other) {
    worker += stage.layout.request.replicas_of(other - 1);
    lists.push_back(receive_list(stage, stage.layout.rank_of(worker, /*copy=*/0)));
  }
  return lists;
}

const OwnedTensor* find_tensor(const PipelineStage& stage, const std::string& name) {
  for (const OwnedTensor& one : stage.tensors)
    if (one.name == name) return &one;
  return nullptr;
}

// "momentum/conv1.weight" -> "conv1.weight"; empty for a list with a number for each parameter.
std::string parameter_of(const std::string& name) {
  size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(slash + 1);
}

bool speaks_for(const PipelineStage& stage, const std::string& name) {
  const OwnedTensor* owned = find_tensor(stage, name);
  YOKE_CHECK(owned != nullptr, "the model has no tensor '{}'", name);
  return owned->stages[0] == stage.place.stage;
}

// Places of this stage's parameters among all of the model's.
std::vector<int64_t> parameter_places(const PipelineStage& stage) {
  std::vector<int64_t> places;
  int64_t at = 0;
  for (const OwnedTensor& one : stage.tensors) {
    if (!one.is_parameter) continue;
    if (one.held_by(stage.place.stage)) places.push_back(at);
    ++at;
  }
  return places;
}

int64_t parameter_total(const PipelineStage& stage) {
  return std::count_if(stage.tensors.begin(), stage.tensors.end(),
                       [](const OwnedTensor& one) { return one.is_parameter; });
}

}  // namespace

std::vector<NamedTensor> held_tensors(const PipelineStage& stage) {
  Named held;
  for (const OwnedTensor& one : stage.tensors)
    if (one.held_by(stage.place.stage)) held.emplace_back(one.name, one.tensor.detach());
  return held;
}

std::vector<NamedTensor> gather_model(const PipelineStage& stage) {
  Named own;
  for (const auto& [name, tensor] : held_tensors(stage))
    if (speaks_for(stage, name)) own.emplace_back(name, tensor);
  std::map<std::string, torch::Tensor> all;
  for (const Named& list : gather_lists(stage, own))
    for (const auto& [name, tensor] : list) all[name] = tensor;
  Named whole;
  if (stage.world.rank() != 0) return whole;
  for (const OwnedTensor& one : stage.tensors) whole.emplace_back(one.name, all.at(one.name));
  return whole;
}

std::vector<NamedTensor> gather_optimizer(const PipelineStage& stage, const Named& own) {
  std::vector<int64_t> places = parameter_places(stage);
  Named told;
  for (const auto& [name, tensor] : own) {
    std::string parameter = parameter_of(name);
    if (parameter.empty()) {  // spread over all parameters, zeros where others have theirs
      torch::Tensor spread = torch::zeros({parameter_total(stage)}, tensor.options());
      for (size_t i = 0; i < places.size(); ++i) spread[places[i]].copy_(tensor[static_cast<int64_t>(i)]);
      told.emplace_back(name, spread);
    } else if (speaks_for(stage, parameter)) {
      told.emplace_back(name, tensor);
    }
  }
  Named whole;
  std::map<std::string, size_t> seen;
  for (const Named& list : gather_lists(stage, told)) {
    for (const auto& [name, tensor] : list) {
      auto [found, added] = seen.emplace(name, whole.size());
      if (added)
        whole.emplace_back(name, tensor.cpu());
      else  // a tied parameter has the same count in each of its stages
        whole[found->second].second = torch::maximum(whole[found->second].second, tensor.cpu());
    }
  }
  return whole;
}

std::vector<NamedTensor> part_of_optimizer(const PipelineStage& stage, const Named& whole, const Named& own) {
  std::map<std::string, torch::Tensor> all(whole.begin(), whole.end());
  torch::Tensor places = torch::tensor(parameter_places(stage), torch::kInt64);
  Named part;
  for (const auto& [name, tensor] : own) {
    auto found = all.find(name);
    if (found == all.end()) continue;  // who restores from it says what is missing
    bool list = parameter_of(name).empty();
    part.emplace_back(name, list ? found->second.index_select(0, places) : found->second);
  }
  return part;
}

}  // namespace yoke::parallel
