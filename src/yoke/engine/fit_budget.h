// train.recompute = budget:<bytes>: the least recomputation with which a step fits into that memory.
#pragma once

#include <vector>

#include "yoke/compute/recompute_policy.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// The segments of the model for options.compute.recompute. A budget limits the peak memory of a step
// (StepProbe::peak_bytes()) and, on the CPU, of what the caller holds besides: steps are run with different
// amounts of recomputation until the smallest that fits is found; evaluation gets a batch size that fits too
// (worker.evaluation_batch). Throws ConfigError for a budget that is too small, with the smallest sufficient
// one. Requires: a worker with model and optimizer, without a strategy.
std::vector<compute::Segment> fit_recomputation(Worker& worker, const WorkerOptions& options);

// Throws ConfigError if a budget is combined with options for which it cannot be measured.
void check_budget(const WorkerOptions& options);

}  // namespace yoke::engine
