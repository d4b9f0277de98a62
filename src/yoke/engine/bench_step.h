// Throughput of whole training steps on prepared data: the limit of model and device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/engine/worker.h"

namespace yoke::engine {

struct BenchStepResult {
  std::string model;
  int64_t batch = 0;
  std::string precision;
  std::string device;
  std::string recompute;
  double samples_per_s = 0;
  std::optional<double> tokens_per_s;
  double step_seconds_median = 0;
  double step_seconds_p95 = 0;
  double tflops = 0;
  double peak_fraction = 0;  // of the matrix-multiply speed measured with it
  int64_t peak_memory_bytes = 0;
  std::optional<int64_t> largest_batch;  // if it was searched for
};

// Forward, loss, backward and update of `steps` steps after a warm-up, on a few fixed synthetic batches.
// Throws OutOfMemory.
BenchStepResult bench_step(const WorkerOptions& options, int64_t steps);

// Seconds of each of those steps. The worker is unusable after OutOfMemory.
std::vector<double> time_steps(Worker& worker, const WorkerOptions& options, int64_t warm_up, int64_t steps);

}  // namespace yoke::engine
