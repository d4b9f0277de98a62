#include "yoke/parallel/common/one_device.h"

#include <cmath>

#include "yoke/base/clock.h"
#include "yoke/compute/device.h"
#include "yoke/compute/layers.h"
#include "yoke/optim/averaging.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/finite.h"

namespace yoke::parallel {

OneDevice::OneDevice(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                     OneDeviceOptions options)
    : model_(model), optimizer_(optimizer), scaler_(scaler), options_(std::move(options)) {
  for (const auto& item : model.module->named_parameters()) {
    named_parameters_.emplace_back(item.key(), item.value());
    parameters_.push_back(item.value());
  }
  for (const models::Block& block : model.blocks) {
    if (!options_.before_block) {
      blocks_.push_back(block.forward);
      continue;
    }
    blocks_.push_back([this, number = blocks_.size(), &block](const std::vector<torch::Tensor>& inputs) {
      options_.before_block(number);
      return block.forward(inputs);
    });
  }
  batch_counters_ = compute::batch_counters(*model.module);
}

void OneDevice::acquire() {
  optimizer_.zero_grad();
  step_batches_.clear();
}

torch::Tensor OneDevice::forward_loss(const KeptBatch& batch) {
  AutocastGuard autocast(options_.device.type(), options_.precision);
  return model_.loss(run_blocks(blocks_, batch.inputs, options_.segments), batch.target) * batch.weight;
}

ComputeResult OneDevice::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                 const MicroBatch& micro) {
  Stopwatch watch;
  KeptBatch batch{{}, target.to(options_.device, /*non_blocking=*/true), micro.weight};
  for (const torch::Tensor& input : inputs) batch.inputs.push_back(options_.place(input));
  if (!batch_counters_.empty()) at::_foreach_add_(batch_counters_, 1);
  torch::Tensor loss = forward_loss(batch);
  double forward_seconds = watch.lap();
  scaler_.scale(loss).backward();
  double backward_seconds = watch.lap();
  if (options_.keep_batches) step_batches_.push_back(std::move(batch));
  torch::Tensor mean = micro.weight == 0 ? torch::zeros_like(loss.detach()) : loss.detach() / micro.weight;
  return {mean, forward_seconds, backward_seconds};
}

CommitResult OneDevice::commit(const CommitOptions& commit) {
  CommitResult result;
  bool finite = scaler_.unscale(parameters_);
  if (options_.slices && loss_scale()) {
    finite = !any_over(options_.slices, !finite);
    scaler_.set_found_inf(!finite);
  }
  if (finite && (options_.clip_norm > 0 || commit.measure_norm)) {
    torch::Tensor norm =
        options_.slices ? clip_whole_norm() : optim::clip_grad_norm(parameters_, options_.clip_norm);
    if (commit.measure_norm) {
      result.grad_norm = norm.item<double>();
      finite = std::isfinite(*result.grad_norm);
    }
  }
  if (finite) optimizer_.step(commit.lr, {[this] { return evaluate_again(); }, options_.same_on_replicas});
  scaler_.update();
  result.updated = finite;
  return result;
}

// By the norm over all slices.
torch::Tensor OneDevice::clip_whole_norm() {
  double own = optim::clip_grad_norm(counted(options_.slices, parameters_), /*max_norm=*/0).item<double>();
  torch::Tensor norm = torch::tensor(std::sqrt(sum_over(options_.slices, own * own)), torch::kFloat64);
  if (options_.clip_norm > 0)
    optim::scale_gradients(parameters_, (options_.clip_norm / (norm + 1e-6)).clamp_max(1.0));
  return norm;
}

// The loss of the whole step at the current parameters, with its gradients.
torch::Tensor OneDevice::evaluate_again() {
  torch::Tensor sum;
  for (const KeptBatch& batch : step_batches_) {
    torch::Tensor loss = forward_loss(batch);
    loss.backward();
    sum = sum.defined() ? sum + loss.detach() : loss.detach();
  }
  return options_.mean_over_replicas ? options_.mean_over_replicas(sum) : sum;
}

std::vector<torch::Tensor> OneDevice::forward(const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Tensor> placed;
  for (const torch::Tensor& input : inputs) placed.push_back(options_.place(input));
  return model_.forward(placed);
}

bool OneDevice::exchange_average() {
  return optim::exchange_average(optimizer_);
}

std::vector<StatePiece> OneDevice::state() {
  NamedTensors buffers;
  for (const auto& item : model_.module->named_buffers()) buffers.emplace_back(item.key(), item.value());
  return whole_state(named_parameters_, buffers, optimizer_.state());
}

std::optional<std::string> OneDevice::first_non_finite_gradient() {
  return optim::first_non_finite_gradient(named_parameters_);
}

std::optional<double> OneDevice::loss_scale() const {
  if (options_.precision != Precision::kFp16) return std::nullopt;
  return scaler_.current_scale();
}

}  // namespace yoke::parallel
