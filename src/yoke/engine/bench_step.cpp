#include "yoke/engine/bench_step.h"

#include <algorithm>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/compute/device.h"
#include "yoke/engine/machine_speed.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/engine/synthetic_batches.h"
#include "yoke/metrics/quantiles.h"

namespace yoke::engine {

std::vector<double> time_steps(Worker& worker, const WorkerOptions& options, int64_t warm_up, int64_t steps) {
  auto run = [&] {
    // One: a second would be counted as memory that the step needs.
    const data::Batch batch = synthetic_batches(worker, options.batch_size, /*seed=*/1, /*count=*/1)[0];
    std::vector<double> seconds;
    for (int64_t i = 0; i < warm_up + steps; ++i) {
      Stopwatch watch;
      worker.strategy->acquire();
      worker.strategy->compute(batch.inputs, batch.target, {});
      worker.strategy->commit({kBenchLearningRate, /*measure_norm=*/false});
      compute::synchronize(worker.device);
      if (i >= warm_up) seconds.push_back(watch.seconds());
    }
    return seconds;
  };
  try {
    return run();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw OutOfMemory(describe_out_of_memory(error, "in a step", worker, options));
  }
}

BenchStepResult bench_step(const WorkerOptions& options, int64_t steps) {
  const torch::Device device = compute::resolve_device(options.compute.device);
  compute::release_freed_memory(device);  // of previous measurements
  compute::reset_peak_memory(device);
  auto worker = make_worker(options);
  std::vector<double> seconds = time_steps(*worker, options, kBenchWarmUpSteps, steps);

  BenchStepResult result;
  result.model = options.model.name;
  result.batch = options.batch_size;
  result.precision = options.compute.precision;
  result.device = options.compute.device;
  result.recompute = options.compute.recompute;
  result.step_seconds_median = metrics::median(seconds);
  result.step_seconds_p95 = metrics::quantile(seconds, 0.95);
  result.samples_per_s = static_cast<double>(options.batch_size) / result.step_seconds_median;
  if (worker->model.sample.kind == SampleKind::kTokens) {
    result.tokens_per_s = result.samples_per_s * static_cast<double>(worker->model.sample.shape[0]);
  }
  double flops = worker->model.step_flops_per_sample * result.samples_per_s;
  result.tflops = flops / 1e12;
  result.peak_memory_bytes = compute::peak_memory_bytes(worker->device);
  result.peak_fraction = flops / matmul_flops(worker->device, worker->precision);
  return result;
}

}  // namespace yoke::engine
