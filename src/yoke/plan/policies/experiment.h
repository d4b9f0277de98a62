// Workers under a rule, with delays instead of computation: run by the simulator and by real servers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "yoke/plan/policies/delay_law.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::plan {

// F(w) = w^2 / 2 of a scalar w, with gradients w + noise * N(0, 1).
struct Quadratic {
  double noise = 1;
  double step = 0.1;
};

struct PolicyExperiment {
  PolicyOptions policy;
  DelayLaw law;
  std::vector<bool> slow;  // [worker]: the law applies to it; empty: to all
  DelayLaw link;           // delay of each gradient on its way, for the same workers
  double compute = 0;      // seconds per minibatch without the law
  int64_t updates = 1000;  // measured, after the warm-up
  int64_t warm_up = 1000;  // updates not measured
  uint64_t seed = 1;
  int64_t bytes = 0;  // size of the parameters
  std::optional<Quadratic> objective;
  // Called now and then with the updates so far, on any thread
  std::function<void(int64_t updates)> progress;
};

}  // namespace yoke::plan
