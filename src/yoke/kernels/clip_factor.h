// The factor of gradient clipping, used everywhere.
#pragma once

#include <algorithm>
#include <cmath>

namespace yoke::kernels {

// The factor that scales a gradient of this norm down to `max_norm`, as torch.nn.utils.clip_grad_norm_; 1 if
// there is nothing to clip, 0 if the norm is not finite. Requires max_norm > 0.
inline double clip_factor(double norm, double max_norm) {
  constexpr double kEpsilon = 1e-6;
  return std::isfinite(norm) ? std::min(1.0, max_norm / (norm + kEpsilon)) : 0;
}

}  // namespace yoke::kernels
