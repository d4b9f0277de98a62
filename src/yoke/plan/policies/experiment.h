// Workers under a rule, with delays in place of computing: what the virtual clock and real servers both run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "yoke/plan/policies/delay_law.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::plan {

// F(w) = w^2 / 2 of one number w, whose gradients are w + noise x N(0, 1).
struct Quadratic {
  double noise = 1;
  double step = 0.1;
};

struct PolicyExperiment {
  PolicyOptions policy;
  DelayLaw law;
  std::vector<bool> slow;  // [worker]: the law holds for it; empty: for all
  double compute = 0;      // seconds of a minibatch without the law
  int64_t updates = 1000;  // measured, after
  int64_t warm_up = 1000;  // updates that are not
  uint64_t seed = 1;
  int64_t bytes = 0;  // of the parameters
  std::optional<Quadratic> objective;
  std::function<void(int64_t updates)> progress;  // now and then with those done so far, on any thread
};

}  // namespace yoke::plan
