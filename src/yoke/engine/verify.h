// Verifies a parallel layout: the same steps on one device, side by side, compared after each.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "yoke/data/options.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// For values that are non-finite, on one side only, of another shape, or missing.
constexpr double kInfinitelyApart = std::numeric_limits<double>::infinity();

// Largest differences over all steps and ranks, relative to the largest value on one device.
struct Differences {
  double loss = 0;
  double gradient = 0;
  double parameter = 0;
  double largest() const;
};

struct Verification {
  std::vector<double> reference_loss;  // of one device, by step
  std::vector<double> loss;            // of the layout
  Differences worst;
};

struct VerifyOptions {
  std::string layout;      // for messages
  WorkerOptions alone;     // one device; its batch_size is the global batch, which every layout divides
  WorkerOptions parallel;  // a rank of the layout, before it is connected
  int ranks = 1;           // threads of this process
  data::DataOptions data;
  int64_t steps = 10;
  torch::ScalarType type = torch::kFloat64;
  // Called with every worker of the layout after its creation. Tests break layouts here.
  std::function<void(int rank, Worker& worker)> tamper;
};

// Trains the layout on ranks of this process (threads), and one device beside it. Every rank compares the
// pieces it holds. Strategies with their own replay (Strategy::replay) are compared with that: losses after
// every step and weights at the end; `gradient` is then the sum of all updates, (last - first weights) / lr.
// If workers are not in lockstep, `gradient` and `loss` are means over them. Throws ConfigError if the batch
// cannot be divided that way.
Verification verify(const VerifyOptions& options);

}  // namespace yoke::engine
