#include "yoke/optim/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "yoke/base/error.h"
#include "yoke/kernels/loss_scale.h"
#include "yoke/optim/gradients.h"

namespace yoke::optim {

GradScaler::GradScaler(GradScalerOptions options) : options_(options), scale_(options.init_scale) {
  YOKE_CHECK(options.min_scale > 0 && options.init_scale >= options.min_scale && options.growth > 1 &&
                 options.backoff > 0 && options.backoff < 1 && options.growth_interval > 0,
             "GradScaler: init_scale {} >= min_scale {} > 0, growth {} > 1, 0 < backoff {} < 1, "
             "growth_interval {} > 0",
             options.init_scale, options.min_scale, options.growth, options.backoff, options.growth_interval);
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) const {
  return options_.enabled ? loss * scale_ : loss;
}

bool GradScaler::unscale(const std::vector<torch::Tensor>& parameters) {
  if (!options_.enabled) return true;
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> found;  // by device
  for (const auto& group : gradient_groups(parameters)) {
    YOKE_CHECK(group[0].scalar_type() != torch::kHalf,
               "GradScaler: unscaling fp16 gradients would lose precision. Keep parameters in fp32 and use "
               "AutocastGuard");
    auto options = at::TensorOptions().dtype(torch::kFloat).device(group[0].device());
    torch::Tensor& flag = found.try_emplace(group[0].device().str(), at::zeros({1}, options)).first->second;
    at::_amp_foreach_non_finite_check_and_unscale_(group, flag, at::full({}, 1.0 / scale_, options));
  }
  for (const auto& [device, flag] : found) found_inf_ = flag.item<float>() != 0 || found_inf_;
  return !found_inf_;
}

void GradScaler::set_found_inf(bool found) {
  found_inf_ = found;
}

bool GradScaler::found_inf() const {
  return found_inf_;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  const kernels::LossScale next = kernels::next_loss_scale(
      {scale_, tracker_}, found_inf_,
      {options_.growth, options_.backoff, options_.growth_interval, options_.min_scale});
  scale_ = next.scale;
  tracker_ = next.tracker;
  found_inf_ = false;
}

double GradScaler::current_scale() const {
  return options_.enabled ? scale_ : 1.0;
}

int64_t GradScaler::growth_tracker() const {
  return tracker_;
}

void GradScaler::restore(double scale, int64_t growth_tracker) {
  if (!(scale > 0) || !std::isfinite(scale) || growth_tracker < 0) {
    throw CheckpointError(
        "loss scale {} with growth tracker {}: the scale must be above 0 and the tracker not negative. The "
        "checkpoint is damaged; use an older one",
        scale, growth_tracker);
  }
  scale_ = std::max(options_.min_scale, scale);
  tracker_ = growth_tracker;
  found_inf_ = false;
}

}  // namespace yoke::optim
