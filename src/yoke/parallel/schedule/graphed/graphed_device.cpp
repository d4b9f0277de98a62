#include "yoke/parallel/schedule/graphed/graphed_device.h"

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/optim/clip.h"

namespace yoke::parallel {
namespace {

// Libraries select algorithms and allocate workspaces in the first steps; recording comes after.
constexpr int64_t kWarmUpSteps = 3;

}  // namespace

GraphedDevice::GraphedDevice(const models::Model& model, optim::Optimizer& optimizer,
                             optim::GradScaler& scaler, OneDeviceOptions options)
    : optimizer_(optimizer),
      options_(options),
      eager_(model, optimizer, scaler, std::move(options)),
      parameters_(model.module->parameters()) {}

void GraphedDevice::fill(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target) {
  if (inputs_.empty()) {
    for (const torch::Tensor& input : inputs) inputs_.push_back(options_.place(input).clone());
    target_ = target.to(options_.device).clone();
    return;
  }
  YOKE_CHECK(target.sizes() == target_.sizes(), "a batch of another shape than the recorded one");
  for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].copy_(inputs[i], /*non_blocking=*/true);
  target_.copy_(target, /*non_blocking=*/true);
}

void GraphedDevice::forward_and_backward() {
  optimizer_.zero_grad();
  loss_ = eager_.compute(inputs_, target_, {}).loss;
}

ComputeResult GraphedDevice::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                     const MicroBatch& micro) {
  YOKE_CHECK(micro.weight == 1.0, "recorded steps do not accumulate");
  fill(inputs, target);
  if (steps_ < kWarmUpSteps) {
    compute::DeviceGraph::warm_up([this] { forward_and_backward(); });
  } else {
    if (!gradient_graph_) gradient_graph_ = compute::DeviceGraph::record([this] { forward_and_backward(); });
    gradient_graph_->replay();
  }
  // The next replay overwrites the loss, so return a copy.
  return {loss_.clone(), 0, 0};
}

void GraphedDevice::update() {
  if (options_.clip_norm > 0) optim::clip_grad_norm(parameters_, options_.clip_norm);
  optimizer_.update({});
}

CommitResult GraphedDevice::commit(const CommitOptions& commit) {
  CommitResult result;
  if (commit.measure_norm) {
    result.grad_norm = optim::clip_grad_norm(parameters_, 0).item<double>();
    result.updated = std::isfinite(*result.grad_norm);
  }
  if (result.updated) {
    optimizer_.set_lr(commit.lr);
    if (steps_ < kWarmUpSteps) {
      compute::DeviceGraph::warm_up([this] { update(); });
    } else {
      if (!update_graph_) update_graph_ = compute::DeviceGraph::record([this] { update(); });
      update_graph_->replay();
    }
  }
  ++steps_;
  return result;
}

}  // namespace yoke::parallel
