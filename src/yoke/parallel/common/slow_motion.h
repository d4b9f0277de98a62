// An artificially slower device: [slowdown] for replicas that average gradients.
#pragma once

#include "yoke/models/model.h"
#include "yoke/plan/policies/delay_law.h"

namespace yoke::parallel {

// The same model on a slower device, in training mode; evaluation runs at full speed. A factor (const:2x)
// stretches every block, forward and backward, so that overlap with backward behaves as on a slow device;
// other laws wait once per minibatch, before its backward. Shares module and weights with `model`. CPU only:
// the host waits.
models::Model in_slow_motion(const models::Model& model, const plan::DelayLaw& law, uint64_t seed,
                             int worker);

}  // namespace yoke::parallel
