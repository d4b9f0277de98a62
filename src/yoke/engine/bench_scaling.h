// Measures the cost of training on several ranks: steps with and without communication, in the same run.
#pragma once

#include <cstdint>
#include <optional>

#include "yoke/engine/worker.h"

namespace yoke::engine {

struct ScalingResult {
  double step_seconds_median = 0;
  double step_seconds_p95 = 0;
  // The same program on the same ranks without communication. Empty where a rank holds a part of the model,
  // which cannot train by itself.
  struct Alone {
    double step_seconds = 0;
    double slowest_seconds = 0;  // the slowest rank's of each of those steps: the cost of waiting alone
    double in_step_seconds = 0;  // likewise, with a barrier after every step
  };
  std::optional<Alone> alone;
  // What a rank computes in a step, in the mean over the ranks: alone, or the passes and the update of its
  // stages. Empty with tensor parallelism: what its layers exchange is not told apart from what they compute.
  std::optional<double> compute_seconds;
  double comm_seconds = 0;          // per step: communication in flight
  double exposed_comm_seconds = 0;  // per step: the step waited for it; in a pipeline also for other stages
  int64_t bytes_sent = 0;           // per rank and step
  int64_t peak_memory_bytes = 0;    // maximum over the ranks
};

// Collective over options.replicas. Times `steps` steps of each kind, in alternating rounds; medians.
ScalingResult bench_scaling(const WorkerOptions& options, comm::Communicator& comm, int64_t steps);

}  // namespace yoke::engine
