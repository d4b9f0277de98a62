// In which order one worker computes; the messages and updates around it are the same for all schedules.
#pragma once

#include <vector>

#include "yoke/plan/schedules/schedule.h"

namespace yoke::plan {

struct Computation {
  ScheduleOp op = ScheduleOp::kForward;  // kForward, kBackward or kWeight
  int microbatch = 0;
  int chunk = 0;
};

// Of one worker, for all minibatches.
std::vector<Computation> compute_order(const ScheduleRequest& request, int stage, int replica);

// Whether the pipeline runs empty after each minibatch, with one update then.
bool flushes(ScheduleKind kind);

}  // namespace yoke::plan
