// What training on several ranks costs: steps that communicate beside steps that do not, in the same run.
#pragma once

#include <cstdint>

#include "yoke/engine/worker.h"

namespace yoke::engine {

struct ScalingResult {
  double step_seconds_median = 0;
  double step_seconds_p95 = 0;
  double alone_step_seconds = 0;     // the same program on the same ranks, which do not communicate
  double alone_slowest_seconds = 0;  // and the slowest rank's of each step: what waiting alone would cost
  double in_step_seconds = 0;        // and when they wait for each other after every step, moving nothing
  double comm_seconds = 0;           // of one step: communication was under way
  double exposed_comm_seconds = 0;   // backward waited for it
  int64_t bytes_sent = 0;            // by one rank, in one step
  int64_t peak_memory_bytes = 0;     // the largest of all ranks
};

// Collective over options.replicas. Times `steps` steps of each kind, in alternating rounds, as medians.
ScalingResult bench_scaling(const WorkerOptions& options, comm::Communicator& comm, int64_t steps);

}  // namespace yoke::engine
