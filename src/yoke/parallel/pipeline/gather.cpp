#include "yoke/parallel/pipeline/gather.h"

#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

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

}  // namespace

std::vector<NamedTensor> gather_model(const PipelineStage& stage) {
  Named own;
  for (const OwnedTensor& one : stage.tensors)
    if (one.stages[0] == stage.place.stage) own.emplace_back(one.name, one.tensor.detach());
  std::map<std::string, torch::Tensor> all;
  for (const Named& list : gather_lists(stage, own))
    for (const auto& [name, tensor] : list) all[name] = tensor;
  Named whole;
  if (stage.world.rank() != 0) return whole;
  for (const OwnedTensor& one : stage.tensors) whole.emplace_back(one.name, all.at(one.name));
  return whole;
}

}  // namespace yoke::parallel
