// Divides the batch in proportion to the speed of the replicas: `parallel.split`.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::engine {

// "8:4" as shares of `replicas` replicas; "equal" and "speed" give none (SpeedSplit finds the latter). Throws
// ConfigError that says what is accepted.
std::vector<double> parse_split(const std::string& text, int replicas);

// Measures and adjusts after a few steps, and periodically. Uses the median of the steps since the last
// adjustment; changes below 3 % of a part are ignored. Collective in the steps that adjust.
class SpeedSplit {
 public:
  // This rank belongs to replica `part` of `parts`; `comm` has all ranks of all replicas. A replica is as
  // fast as its slowest rank. `apply` gets the shares of all replicas, on all ranks in the same step.
  SpeedSplit(comm::Communicator& comm, torch::Device device, int64_t part, int64_t parts,
             std::function<void(const std::vector<double>&)> apply);

  // A step of this rank: its number of samples and its compute time, without waiting for others.
  void add(int64_t samples, double seconds);

  const std::vector<double>& shares() const { return shares_; }

 private:
  void look();

  comm::Communicator& comm_;
  torch::Device device_;
  int64_t part_;
  std::function<void(const std::vector<double>&)> apply_;
  std::vector<double> seconds_per_sample_;
  std::vector<double> shares_;
  int64_t steps_ = 0;
  int64_t next_look_;
};

}  // namespace yoke::engine
