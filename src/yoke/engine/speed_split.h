// The batch cut in proportion to how fast ranks are: `parallel.split`.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::engine {

// "8:4" as shares of so many replicas; "equal" gives none. Throws ConfigError that says what is accepted.
// "speed" gives none either: SpeedSplit finds them.
std::vector<double> parse_split(const std::string& text, int replicas);

// Measures and cuts anew: after a few steps, and now and then. The median of the steps since the last look
// counts; a change of less than 3 % of a part is left alone. Collective in the steps that look.
class SpeedSplit {
 public:
  // `apply` gets the shares of all replicas, on all ranks in the same step.
  SpeedSplit(comm::Communicator& comm, torch::Device device,
             std::function<void(const std::vector<double>&)> apply);

  // A step of this rank: its samples, and how long it computed on them, without waiting for others.
  void add(int64_t samples, double seconds);

  const std::vector<double>& shares() const { return shares_; }

 private:
  void look();

  comm::Communicator& comm_;
  torch::Device device_;
  std::function<void(const std::vector<double>&)> apply_;
  std::vector<double> seconds_per_sample_;
  std::vector<double> shares_;
  int64_t steps_ = 0;
  int64_t next_look_;
};

}  // namespace yoke::engine
