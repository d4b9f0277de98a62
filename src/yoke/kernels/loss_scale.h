// How the loss scale of fp16 follows overflows (Micikevicius et al. 2018), with the rules of PyTorch's
// scaler.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace yoke::kernels {

struct LossScale {
  double scale = 65536;
  int64_t tracker = 0;  // steps without an overflow since the scale has changed
};

struct LossScaleRules {
  double growth = 2.0;
  double backoff = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1.0;  // overflows at this scale have another cause
};

// After a step. `overflow`: it was skipped.
inline LossScale next_loss_scale(LossScale now, bool overflow, const LossScaleRules& rules = {}) {
  if (overflow) return {std::max(rules.min_scale, now.scale * rules.backoff), 0};
  if (now.tracker + 1 < rules.growth_interval) return {now.scale, now.tracker + 1};
  // The loss is fp32: a scale beyond its range would make every step overflow.
  const double grown = now.scale * rules.growth;
  return {std::isfinite(static_cast<float>(grown)) ? grown : now.scale, 0};
}

}  // namespace yoke::kernels
