#include "yoke/parallel/pipeline/gradient_exchange.h"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "yoke/base/clock.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kMessageBytes = 25 << 20;

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
    group.tied = stages.size() > 1;
    group.parameters.resize(static_cast<size_t>(layout.request.chunks));
    if (ranks > 1) {
      std::string name = stages.size() > 1 ? "tied" : fmt::format("stage {}", stages[0]);
      group.comm = world.split(here ? 0 : -1, world.rank(), name);
    }
    for (const OwnedTensor& one : tensors)
      if (here && one.is_parameter && one.stages == stages)
        group.parameters[group.tied ? 0 : static_cast<size_t>(one.chunk)].push_back(one.tensor);
    if (here) groups_.push_back(std::move(group));
  }
  // A tied weight's other stage may come much later: what the stage has to itself goes first.
  std::stable_partition(groups_.begin(), groups_.end(), [](const Group& group) { return !group.tied; });
  bool counts = place.replica == 0 && place.copy == 0;
  for (const OwnedTensor& one : tensors) {
    if (!one.is_parameter || !one.held_by(place.stage)) continue;
    parameters_.push_back(one.tensor);
    if (counts && one.stages[0] == place.stage) counted_.push_back(one.tensor);
  }
}

GradientExchange::~GradientExchange() {
  for (const Message& one : moving_) {
    try {
      one.pending.wait();
    } catch (const std::exception&) {  // told to whoever waited for it before
    }
  }
}

void GradientExchange::begin(int chunk) {
  if (!begun_.insert(chunk).second) return;
  for (const Group& group : groups_)
    if (!group.tied) send(group, static_cast<size_t>(chunk));
}

double GradientExchange::finish() {
  Stopwatch watch;
  torch::NoGradGuard no_grad;
  for (int chunk = static_cast<int>(groups_[0].parameters.size()) - 1; chunk >= 0; --chunk) begin(chunk);
  for (const Group& group : groups_)
    if (group.tied) send(group, 0);
  for (Message& one : moving_) {
    one.pending.wait();
    int64_t at = 0;
    for (torch::Tensor& gradient : one.gradients) {
      gradient.copy_(one.flat.narrow(0, at, gradient.numel()).view(gradient.sizes()));
      at += gradient.numel();
    }
  }
  moving_.clear();
  begun_.clear();
  return watch.seconds();
}

void GradientExchange::give_to_stage(const NamedTensors& tensors) const {
  if (groups_[0].comm) give_values(tensors, *groups_[0].comm, 0);
}

void GradientExchange::clip_each(double max_norm) const {
  for (const Group& group : groups_) {
    std::vector<torch::Tensor> all;
    for (const auto& list : group.parameters) all.insert(all.end(), list.begin(), list.end());
    optim::clip_grad_norm(all, max_norm);
  }
}

void GradientExchange::send(const Group& group, size_t chunk) {
  if (!group.comm) return;
  std::map<torch::ScalarType, std::vector<torch::Tensor>> waiting;
  std::map<torch::ScalarType, int64_t> bytes;
  for (torch::Tensor parameter : group.parameters[chunk]) {
    // Whoever had no part in it adds nothing.
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    torch::ScalarType type = parameter.scalar_type();
    waiting[type].push_back(parameter.grad());
    bytes[type] += static_cast<int64_t>(parameter.nbytes());
    if (bytes[type] < kMessageBytes) continue;
    send(*group.comm, std::exchange(waiting[type], {}));
    bytes[type] = 0;
  }
  for (auto& [type, gradients] : waiting)
    if (!gradients.empty()) send(*group.comm, std::move(gradients));
}

void GradientExchange::send(comm::Communicator& comm, std::vector<torch::Tensor> gradients) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& one : gradients) flat.push_back(one.reshape({-1}));
  Message& message = moving_.emplace_back();
  message.flat = at::cat(flat);
  message.gradients = std::move(gradients);
  message.pending =
      comm.all_reduce(comm::buffer_of(message.flat), ReduceOp::kSum, {.name = "gradients of a stage"});
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
