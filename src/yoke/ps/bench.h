// Real servers and workers, as threads of this process that talk over shared memory or tcp, with delays in
// place of computing: what `yoke bench ps` measures.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/plan/policies/delay_law.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/ps/accounting.h"

namespace yoke::ps {

struct PolicyBench {
  plan::PolicyOptions policy;
  plan::DelayLaw law;
  std::vector<bool> slow;  // [worker]: the law holds for it; empty: for all
  double compute = 0;      // seconds of a minibatch without the law
  int64_t updates = 1000;  // measured, after
  int64_t warm_up = 100;   // updates that are not
  uint64_t seed = 1;
  int64_t bytes = 1 << 20;  // of the parameters
  int servers = 1;
  std::string backend = "shm";  // or tcp
  // F(w) = w^2 / 2 of one number, whose gradients are w + noise x N(0, 1).
  struct Quadratic {
    double noise = 1;
    double step = 0.1;
  };
  std::optional<Quadratic> objective;
  std::function<void(int64_t updates)> progress;  // now and then, on another thread
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
