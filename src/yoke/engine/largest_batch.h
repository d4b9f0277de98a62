// The largest batch whose training steps fit into memory.
#pragma once

#include <cstdint>
#include <functional>

#include "yoke/engine/worker.h"

namespace yoke::engine {

// The largest number for which `fits`, found by doubling from `start` and then halving the gap, to within 3
// %; 0: not even 1. Requires: what fits does so for all smaller numbers.
int64_t largest_that_fits(const std::function<bool(int64_t)>& fits, int64_t start = 1);

// Runs real steps with ever larger batches; options.batch_size does not matter. On the CPU, where the kernel
// would end the process instead of refusing memory, what is predicted to exceed the free memory is not tried.
// Throws OutOfMemory or ConfigError where one sample does not fit.
int64_t largest_batch(WorkerOptions options);

}  // namespace yoke::engine
