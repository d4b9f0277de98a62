#include "yoke/engine/largest_batch.h"

#include <algorithm>

#include "yoke/base/log.h"
#include "yoke/compute/device.h"
#include "yoke/compute/recompute_policy.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/engine/step_memory.h"
#include "yoke/engine/synthetic_batches.h"

namespace yoke::engine {
namespace {

constexpr int64_t kPrecision = 32;  // the result may be too small by one part in this many
constexpr int64_t kEndless = int64_t{1} << 40;
constexpr double kHostMargin = 0.95;  // of free memory

// Prediction from small steps. With a budget, it decides.
int64_t predicted_largest(const WorkerOptions& options) {
  if (compute::recompute_budget(options.compute.recompute)) return 0;
  WorkerOptions small = options;
  small.batch_size = 2;
  auto worker = make_worker(small);
  StepProbe probe(*worker, small);
  StepNeeds needs = step_needs(probe, *worker, small.compute.recompute);
  compute::release_freed_memory(worker->device);
  return needs.largest_batch(kHostMargin * static_cast<double>(compute::memory_room(worker->device).free));
}

void run_some_steps(const WorkerOptions& options) {
  auto worker = make_worker(options);
  time_steps(*worker, options, kBenchWarmUpSteps, /*steps=*/0);  // on CUDA they are recorded by then
}

bool steps_fit(WorkerOptions options, int64_t batch) {
  options.batch_size = batch;
  bool possible = true;
  try {
    run_some_steps(options);
  } catch (const OutOfMemory&) {
    possible = false;
  } catch (const ConfigError&) {
    if (!compute::recompute_budget(options.compute.recompute)) throw;
    possible = false;  // because of the budget
  }
  compute::release_freed_memory(compute::resolve_device(options.compute.device));
  log::info("largest batch: {} {}", batch, possible ? "fits" : "does not fit");
  return possible;
}

}  // namespace

int64_t largest_that_fits(const std::function<bool(int64_t)>& fits, int64_t start) {
  int64_t good = 0, bad = std::max<int64_t>(1, start);
  while (bad < kEndless && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  while (bad - good > std::max<int64_t>(1, good / kPrecision)) {
    int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

int64_t largest_batch(WorkerOptions options) {
  const bool host = compute::resolve_device(options.compute.device).is_cpu();
  const int64_t likely = predicted_largest(options);
  // In pairs: BatchNorm cannot train on one sample.
  auto pairs = [&](int64_t batch) {
    if (host && likely > 0 && 2 * batch > likely) return false;
    return steps_fit(options, 2 * batch);
  };
  int64_t found = 2 * largest_that_fits(pairs, likely * 7 / 16);
  if (found > 0) return found;
  options.batch_size = 1;
  run_some_steps(options);  // or throws the reason
  return 1;
}

BenchStepResult bench_largest_batch(const WorkerOptions& any_batch, int64_t steps) {
  WorkerOptions options = any_batch;
  for (options.batch_size = largest_batch(options);;) {
    try {
      BenchStepResult result = bench_step(options, steps);
      result.largest_batch = options.batch_size;
      return result;
    } catch (const OutOfMemory&) {
      if (options.batch_size == 1) throw;
      log::info("largest batch: {} does not fit again", options.batch_size);
    }
    const int64_t pairs = options.batch_size / 2;
    options.batch_size = std::max<int64_t>(1, 2 * (pairs - std::max<int64_t>(1, pairs / kPrecision)));
    compute::release_freed_memory(compute::resolve_device(options.compute.device));
  }
}

}  // namespace yoke::engine
