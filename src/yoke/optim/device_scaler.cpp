#include "yoke/optim/device_scaler.h"

#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/utils.h>

#include <utility>

#include "yoke/optim/clip.h"

namespace yoke::optim {

DeviceScaler::DeviceScaler(GradScaler& host, torch::Device device, double clip_norm, GradScalerOptions rules)
    : host_(host), clip_norm_(clip_norm), rules_(rules) {
  const auto floats = at::TensorOptions().dtype(torch::kFloat).device(device);
  scale_ = at::ones({}, floats);
  tracker_ = at::zeros({}, floats.dtype(torch::kInt));
  scaled_ = {at::ones({}, floats), at::zeros({}, floats)};
  news_ = at::zeros({3}, floats);
  mailbox_ = at::empty({3}, at::TensorOptions().dtype(torch::kFloat).pinned_memory(device.is_cuda()));
  if (device.is_cuda()) arrived_.emplace(device.type());
  load();
}

void DeviceScaler::inspect(const std::vector<torch::Tensor>& parameters) {
  torch::NoGradGuard no_grad;
  // In fp64: finite exactly if all gradients are.
  torch::Tensor norm = clip_grad_norm(parameters, /*max_norm=*/0);
  scaled_.skip.copy_(norm.isfinite().logical_not());
  if (clip_norm_ <= 0) {
    scaled_.divisor.copy_(scale_);
  } else {
    // The divisor of clip_grad_norm(), with the scale in it.
    scaled_.divisor.copy_(((norm / scale_ + 1e-6) / clip_norm_).clamp_min(1.0) * scale_);
  }
}

void DeviceScaler::update() {
  torch::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, tracker_, scaled_.skip, rules_.growth, rules_.backoff,
                         rules_.growth_interval);
  scale_.clamp_min_(rules_.min_scale);
  news_.copy_(at::stack({scale_, tracker_.to(torch::kFloat), scaled_.skip}));
}

void DeviceScaler::load() {
  scale_.fill_(host_.current_scale());
  tracker_.fill_(host_.growth_tracker());
  posted_ = false;
}

void DeviceScaler::post() {
  mailbox_.copy_(news_, /*non_blocking=*/true);
  if (arrived_) {
    const torch::Device device = news_.device();
    arrived_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  posted_ = true;
}

bool DeviceScaler::collect() {
  if (!std::exchange(posted_, false)) return false;
  if (arrived_) arrived_->synchronize();
  const auto* values = mailbox_.const_data_ptr<float>();
  host_.restore(values[0], static_cast<int64_t>(values[1]));
  return values[2] != 0;
}

}  // namespace yoke::optim
