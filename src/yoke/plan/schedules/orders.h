// The order in which one worker computes. Messages and updates are added by make_schedule().
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

// Whether the pipeline drains after each minibatch, followed by one update.
bool flushes(ScheduleKind kind);

}  // namespace yoke::plan
