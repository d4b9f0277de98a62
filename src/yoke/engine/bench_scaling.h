// Measures the cost of training on several ranks: steps with and without communication, in the same run.
#pragma once

#include <cstdint>

#include "yoke/engine/worker.h"

namespace yoke::engine {

struct ScalingResult {
  double step_seconds_median = 0;
  double step_seconds_p95 = 0;
  double alone_step_seconds = 0;     // the same program on the same ranks without communication
  double alone_slowest_seconds = 0;  // the slowest rank's of each of those steps: the cost of waiting alone
  double in_step_seconds = 0;        // likewise, with a barrier after every step
  double comm_seconds = 0;           // per step: communication in flight
  double exposed_comm_seconds = 0;   // per step: backward waited for it
  int64_t bytes_sent = 0;            // per rank and step
  int64_t peak_memory_bytes = 0;     // maximum over the ranks
};

// Collective over options.replicas. Times `steps` steps of each kind, in alternating rounds; medians.
ScalingResult bench_scaling(const WorkerOptions& options, comm::Communicator& comm, int64_t steps);

}  // namespace yoke::engine
