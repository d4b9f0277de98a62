#include "yoke/parallel/schedule/graphed/graphed_device.h"

#include <ATen/ops/full.h>

#include <cmath>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/compute/loss_factor.h"
#include "yoke/optim/clip.h"

namespace yoke::parallel {

GraphedDevice::GraphedDevice(const models::Model& model, optim::Optimizer& optimizer,
                             optim::GradScaler& scaler, OneDeviceOptions options, bool scales)
    : host_scaler_(scaler),
      scaler_(scales ? std::make_optional<optim::DeviceScaler>(scaler, options.device, options.clip_norm)
                     : std::nullopt),
      model_(model),
      optimizer_(optimizer),
      options_(options),
      eager_(model_, optimizer, no_scaler_, std::move(options)),
      recorded_(options_),
      parameters_(model.module->parameters()) {
  model_.loss = [this, loss = model.loss](const models::Tensors& outputs, const torch::Tensor& target) {
    torch::Tensor unscaled = loss(outputs, target);
    unscaled_loss_ = unscaled.detach();
    return scaler_ ? unscaled * scaler_->scale() : unscaled;
  };
  if (scales)
    YOKE_CHECK(optim::follow_scaled_update(optimizer, scaler_->scaled_update()),
               "recorded steps with a loss scale need an optimizer that skips on the device");
}

torch::Tensor GraphedDevice::forward_and_backward(bool first) {
  if (first) optimizer_.zero_grad();
  torch::Tensor factor = weight_on_device_;
  if (scaler_) factor = factor.defined() ? factor * scaler_->scale() : scaler_->scale();
  const compute::ExpectedLossFactor expected(factor);
  eager_.compute(recorded_.inputs(), recorded_.target(), {.weight = weight_});
  return std::exchange(unscaled_loss_, {});
}

ComputeResult GraphedDevice::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                     const MicroBatch& micro) {
  YOKE_CHECK(weight_ == 0 || micro.weight == weight_, "a batch of weight {} after those of {}", micro.weight,
             weight_);
  if (weight_ == 0 && micro.weight != 1)
    weight_on_device_ =
        at::full({}, micro.weight, at::TensorOptions().dtype(torch::kFloat).device(options_.device));
  weight_ = micro.weight;
  recorded_.fill(inputs, target, weight_);
  const bool first = std::exchange(begins_, false);
  return {recorded_.pass(first, [&] { return forward_and_backward(first); }), 0, 0};
}

void GraphedDevice::update() {
  if (scaler_)
    scaler_->inspect(parameters_);
  else if (options_.clip_norm > 0)
    optim::clip_grad_norm(parameters_, options_.clip_norm);
  optimizer_.update({});
  if (scaler_) scaler_->update();
}

CommitResult GraphedDevice::commit(const CommitOptions& commit) {
  CommitResult result;
  drain();
  if (commit.measure_norm) {
    const double norm = optim::clip_grad_norm(parameters_, 0).item<double>() / loss_scale().value_or(1);
    result.updated = scaler_ || std::isfinite(norm);
    if (!scaler_ || std::isfinite(norm)) result.grad_norm = norm;
  }
  if (result.updated) {
    optimizer_.set_lr(commit.lr);
    recorded_.update([this] { update(); });
    if (scaler_) scaler_->post();
  }
  if (std::exchange(skipped_, false)) result.updated = false;
  recorded_.end_step();
  return result;
}

void GraphedDevice::drain() {
  if (scaler_ && scaler_->collect()) skipped_ = true;
}

std::optional<double> GraphedDevice::loss_scale() const {
  return scaler_ ? std::optional(host_scaler_.current_scale()) : std::nullopt;
}

void GraphedDevice::restored(int64_t) {
  if (scaler_) scaler_->load();
}

}  // namespace yoke::parallel
