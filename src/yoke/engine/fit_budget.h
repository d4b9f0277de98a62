// train.recompute = budget:<bytes>: the least recomputation with which a step stays within that memory.
#pragma once

#include <vector>

#include "yoke/compute/recompute_policy.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// The segments of the model for options.compute.recompute. A budget is of the peak memory of a step
// (StepProbe::peak_bytes()) and, on the CPU, of what the caller holds besides: steps are run with more and
// less recomputation until the one with the least is found that stays within it; evaluation gets a batch size
// that does too (worker.evaluation_batch). Throws ConfigError for a budget that is too small, with the
// smallest that is enough. Requires: a worker with model and optimizer, without a strategy.
std::vector<compute::Segment> fit_recomputation(Worker& worker, const WorkerOptions& options);

// Throws ConfigError for a budget together with what it cannot be measured for.
void check_budget(const WorkerOptions& options);

}  // namespace yoke::engine
