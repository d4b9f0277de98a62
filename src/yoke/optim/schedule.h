// The learning rate of every step, as a pure function of the step number. No state to save.
#pragma once

#include <cstdint>

#include "yoke/optim/options.h"

namespace yoke::optim {

struct ScheduleContext {
  int64_t total_steps = 0;     // of the whole run; cosine and linear end there
  double steps_per_epoch = 1;  // optimizer steps: 2.5 for five batches with two batches per step
  int64_t replicas = 1;        // for the linear scaling rule
  // For a run resumed with another batch size: its first step, and the epochs done before.
  int64_t first_step = 0;
  double first_epoch = 0;
};

// Learning rate of step `step` (from 0). With scale_lr the rate rises from `base_lr` to base_lr * replicas
// during warm-up (Goyal et al. 2017); without, from 0: step s of w has (s + 1) / w of the full rate.
double learning_rate(const ScheduleOptions& options, double base_lr, const ScheduleContext& context,
                     int64_t step);

}  // namespace yoke::optim
