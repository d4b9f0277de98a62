#include "yoke/parallel/pipeline/gradient_exchange.h"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kMessageBytes = 25 << 20;

// Some gradients of one type, as one message.
void sum_together(comm::Communicator& comm, std::vector<torch::Tensor> gradients) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& one : gradients) flat.push_back(one.reshape({-1}));
  torch::Tensor all = at::cat(flat);
  comm::all_reduce(comm, all, ReduceOp::kSum, "gradients of a stage");
  int64_t at = 0;
  for (torch::Tensor& one : gradients) {
    one.copy_(all.narrow(0, at, one.numel()).view(one.sizes()));
    at += one.numel();
  }
}

}  // namespace

GradientExchange::GradientExchange(comm::Communicator& world, const PipelineLayout& layout,
                                   const std::vector<OwnedTensor>& tensors)
    : world_(world) {
  PipelinePlace place = layout.place_of(world.rank());
  std::set<std::vector<int>> holders;  // sets of stages, in the same order on all ranks
  for (int stage = 0; stage < layout.request.stages; ++stage) holders.insert({stage});
  for (const OwnedTensor& one : tensors)
    if (one.is_parameter) holders.insert(one.stages);
  for (const std::vector<int>& stages : holders) {
    ties_ = ties_ || stages.size() > 1;
    bool here = std::find(stages.begin(), stages.end(), place.stage) != stages.end();
    int ranks = 0;
    for (int stage : stages) ranks += layout.request.replicas_of(stage) * layout.copies;
    Group group;
    if (ranks > 1) {
      std::string name = stages.size() > 1 ? "tied" : fmt::format("stage {}", stages[0]);
      group.comm = world.split(here ? 0 : -1, world.rank(), name);
    }
    for (const OwnedTensor& one : tensors)
      if (here && one.is_parameter && one.stages == stages) group.parameters.push_back(one.tensor);
    if (here) groups_.push_back(std::move(group));
  }
  bool counts = place.replica == 0 && place.copy == 0;
  for (const OwnedTensor& one : tensors) {
    if (!one.is_parameter || !one.held_by(place.stage)) continue;
    parameters_.push_back(one.tensor);
    if (counts && one.stages[0] == place.stage) counted_.push_back(one.tensor);
  }
}

void GradientExchange::sum() {
  torch::NoGradGuard no_grad;
  for (const Group& group : groups_)
    if (group.comm && !group.parameters.empty()) sum(group);
}

void GradientExchange::clip_each(double max_norm) const {
  for (const Group& group : groups_) optim::clip_grad_norm(group.parameters, max_norm);
}

void GradientExchange::sum(const Group& group) {
  std::map<torch::ScalarType, std::vector<torch::Tensor>> waiting;
  std::map<torch::ScalarType, int64_t> bytes;
  for (torch::Tensor parameter : group.parameters) {
    // Whoever had no part in it adds nothing.
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    torch::ScalarType type = parameter.scalar_type();
    waiting[type].push_back(parameter.grad());
    bytes[type] += static_cast<int64_t>(parameter.nbytes());
    if (bytes[type] < kMessageBytes) continue;
    sum_together(*group.comm, std::exchange(waiting[type], {}));
    bytes[type] = 0;
  }
  for (auto& [type, gradients] : waiting)
    if (!gradients.empty()) sum_together(*group.comm, std::move(gradients));
}

double GradientExchange::square() const {
  double norm = optim::clip_grad_norm(counted_, /*max_norm=*/0).item<double>();
  return norm * norm;
}

GradientExchange::Judgement GradientExchange::judge(bool overflow) const {
  torch::Tensor norm = optim::clip_grad_norm(counted_, /*max_norm=*/0).to(torch::kFloat64);
  torch::Tensor told = torch::tensor({0.0, overflow ? 1.0 : 0.0}, torch::kFloat64).to(norm.device());
  told[0] = norm * norm;
  if (!parameters_.empty()) told = told.to(parameters_[0].device());
  comm::all_reduce(world_, told, ReduceOp::kSum, "norm of the gradients");
  torch::Tensor host = told.cpu();
  const double* sums = host.const_data_ptr<double>();
  return {std::sqrt(sums[0]), sums[1] > 0};
}

}  // namespace yoke::parallel
