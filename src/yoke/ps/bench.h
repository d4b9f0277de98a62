// Real servers and workers as threads of this process, over shared memory or tcp, with delays instead of
// computation: what `yoke bench ps` measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/plan/policies/experiment.h"
#include "yoke/ps/accounting.h"

namespace yoke::ps {

struct PolicyBench : plan::PolicyExperiment {
  int servers = 1;
  std::string backend = "shm";  // or "tcp"
};

struct PolicyBenchResult {
  Accounting counts;
  int64_t bytes = 0;              // pushed and pulled
  double push_seconds = 0;        // per gradient, including the request to the scheduler
  double pull_seconds = 0;        // per pull of the parameters
  double server_cpu_seconds = 0;  // total of all servers
  std::optional<double> loss_floor;
};

// Throws ConfigError for an invalid policy, CommError if a rank fails.
PolicyBenchResult bench_policy(const PolicyBench& bench);

struct ThroughputBench {
  int servers = 1;
  int workers = 1;
  size_t bytes = 0;             // of one push and of one pull
  std::string backend = "shm";  // or "tcp"
  int in_flight = 8;            // per worker
  double seconds = 1;
};

struct ThroughputResult {
  double pushpull_per_s = 0;  // total of all workers
  double bandwidth = 0;       // bytes per second, pushed and pulled
  double server_cpu_seconds_per_byte = 0;
};

// Each worker pushes a vector, the servers add it to theirs, and the worker pulls the sum.
ThroughputResult bench_throughput(const ThroughputBench& bench);

}  // namespace yoke::ps
