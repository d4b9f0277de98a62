#include "yoke/parallel/schedule/graphed/recorded_steps.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kWarmUpSteps = 3;

}  // namespace

bool RecordedSteps::fits(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                         double weight) const {
  if (inputs_.size() != inputs.size() || weight != weight_ || target.sizes() != target_.sizes()) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].sizes() != inputs_[i].sizes()) return false;
  return true;
}

void RecordedSteps::fill(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                         double weight) {
  if (!fits(inputs, target, weight)) {
    // Before the new tensors: what a graph has allocated stays taken as long as it exists.
    first_ = {};
    next_ = {};
    update_.reset();
    last_recorded_ = nullptr;
    weight_ = weight;
    steps_ = 0;
    inputs_.clear();
    for (const torch::Tensor& input : inputs) inputs_.push_back(place_(input).clone());
    target_ = target.to(device_).clone();
    return;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].copy_(inputs[i], /*non_blocking=*/true);
  target_.copy_(target, /*non_blocking=*/true);
}

void RecordedSteps::run(Graph& graph, const std::function<void()>& work) {
  if (steps_ < kWarmUpSteps) return compute::DeviceGraph::warm_up(work);
  if (!graph) {
    graph = compute::DeviceGraph::record(work, last_recorded_);
    last_recorded_ = graph.get();
  }
  graph->replay();
}

torch::Tensor RecordedSteps::pass(bool first, const std::function<torch::Tensor()>& work) {
  Pass& pass = first ? first_ : next_;
  run(pass.graph, [&] { pass.loss = work(); });
  return pass.loss.clone();  // the next replay overwrites the original
}

void RecordedSteps::update(const std::function<void()>& work) {
  run(update_, work);
}

}  // namespace yoke::parallel
