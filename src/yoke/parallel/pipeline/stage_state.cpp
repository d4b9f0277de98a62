#include "yoke/parallel/pipeline/stage_state.h"

#include <torch/utils.h>

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

using optim::NamedTensor;
using Named = std::vector<NamedTensor>;

bool speaks_for(const PipelineStage& stage, const OwnedTensor& tensor) {
  return tensor.stages[0] == stage.place.stage;
}

// "momentum/conv1.weight" -> "conv1.weight"; empty for a list with a number for each parameter.
std::string parameter_of(const std::string& name) {
  size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(slash + 1);
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

// Numbers of the stage's parameters as numbers of all of them: zeros where others have theirs, and a tied
// parameter has the same in each of its stages.
torch::Tensor whole_list(const PipelineStage& stage, const torch::Tensor& own) {
  int64_t total = std::count_if(stage.tensors.begin(), stage.tensors.end(),
                                [](const OwnedTensor& one) { return one.is_parameter; });
  torch::Tensor all = torch::zeros({total}, own.options());
  all.index_copy_(0, torch::tensor(parameter_places(stage), torch::kInt64).to(own.device()), own);
  all = all.to(stage.tensors.at(0).tensor.device());  // where the world's memory is
  comm::all_reduce(stage.world, all, ReduceOp::kMax, "updates of each parameter");
  return all.to(own.device());
}

}  // namespace

std::vector<NamedTensor> held_tensors(const PipelineStage& stage) {
  Named held;
  for (const OwnedTensor& one : stage.tensors)
    if (one.held_by(stage.place.stage)) held.emplace_back(one.name, one.tensor.detach());
  return held;
}

StageState stage_state(const PipelineStage& stage, const Named& optimizer) {
  torch::NoGradGuard no_grad;
  StageState state;
  std::map<std::string, bool> ours;  // parameters
  for (const OwnedTensor& one : stage.tensors) {
    if (one.is_parameter) ours[one.name] = speaks_for(stage, one);
    if (speaks_for(stage, one))
      (one.is_parameter ? state.parameters : state.buffers).emplace_back(one.name, one.tensor.detach());
  }
  for (const auto& [name, tensor] : optimizer) {
    std::string parameter = parameter_of(name);
    if (!parameter.empty()) {
      auto found = ours.find(parameter);
      YOKE_CHECK(found != ours.end(), "the model has no parameter '{}'", parameter);
      if (found->second) state.optimizer.emplace_back(name, tensor);
      continue;
    }
    torch::Tensor whole = whole_list(stage, tensor);
    if (stage.place.stage == 0) state.optimizer.emplace_back(name, whole);
  }
  return state;
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
