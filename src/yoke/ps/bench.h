// Real servers and workers, as threads of this process that talk over shared memory or tcp, with delays in
// place of computing: what `yoke bench ps` measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/plan/policies/experiment.h"
#include "yoke/ps/accounting.h"

namespace yoke::ps {

struct PolicyBench : plan::PolicyExperiment {
  int servers = 1;
  std::string backend = "shm";  // or tcp
};

struct PolicyBenchResult {
  Accounting counts;
  int64_t bytes = 0;              // gradients and pulls
  double push_seconds = 0;        // of a gradient, on average; with asking whether it counts
  double pull_seconds = 0;        // of a gradient's parameters
  double server_cpu_seconds = 0;  // of all servers
  std::optional<double> loss_floor;
};

// Throws ConfigError for a policy that cannot be, CommError when something failed.
PolicyBenchResult bench_policy(const PolicyBench& bench);

struct ThroughputBench {
  int servers = 1;
  int workers = 1;
  size_t bytes = 0;             // of one push and of one pull
  std::string backend = "shm";  // or tcp
  int in_flight = 8;            // of each worker
  double seconds = 1;
};

struct ThroughputResult {
  double pushpull_per_s = 0;  // of all workers
  double bandwidth = 0;       // bytes a second, pushed and pulled
  double server_cpu_seconds_per_byte = 0;
};

// Each worker pushes a vector, the servers add it to theirs, and it gets the sum.
ThroughputResult bench_throughput(const ThroughputBench& bench);

}  // namespace yoke::ps
