// Loss scaling for fp16 (Micikevicius et al. 2018), with the rules of PyTorch's scaler.
//
//   scaler.scale(loss).backward();
//   if (scaler.unscale(parameters)) optimizer.step(...);   // false: an inf or NaN, skip this step
//   scaler.update();
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace yoke::optim {

struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth = 2.0;
  double backoff = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1.0;  // overflows at this scale have another cause
  bool enabled = true;     // false: every call is a no-op
};

// Not thread-safe.
class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});

  torch::Tensor scale(const torch::Tensor& loss) const;
  // Divides the gradients of `parameters` by the scale. Returns whether all are finite. Call it once per
  // step; found_inf() and set_found_inf() let several ranks agree before update().
  bool unscale(const std::vector<torch::Tensor>& parameters);
  // Sets whether any rank had an inf or NaN in this step; overrides what unscale() found here.
  void set_found_inf(bool found);
  bool found_inf() const;
  // Adjusts the scale after a step, skipped or not.
  void update();

  double current_scale() const;
  int64_t growth_tracker() const;
  // Restores the state from a checkpoint.
  void restore(double scale, int64_t growth_tracker);

 private:
  GradScalerOptions options_;
  double scale_;
  int64_t tracker_ = 0;
  bool found_inf_ = false;
};

}  // namespace yoke::optim
