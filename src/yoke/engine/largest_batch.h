// The largest batch whose training steps fit into memory.
#pragma once

#include <cstdint>
#include <functional>

#include "yoke/engine/bench_step.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// The largest number for which `fits` is true, to within 3 %, by doubling from `start` and then bisection; 0:
// not even 1. Requires: `fits` is monotonic.
int64_t largest_that_fits(const std::function<bool(int64_t)>& fits, int64_t start = 1);

// Runs real steps with increasing batches; options.batch_size is ignored. On the CPU, where the kernel would
// kill the process instead of refusing memory, batches predicted to exceed the free memory are not tried.
// Throws OutOfMemory or ConfigError if one sample does not fit.
int64_t largest_batch(WorkerOptions options);

// bench_step() with it. Free memory may be scattered differently than during the search: if those steps do
// not fit, smaller batches are tried.
BenchStepResult bench_largest_batch(const WorkerOptions& options, int64_t steps);

}  // namespace yoke::engine
