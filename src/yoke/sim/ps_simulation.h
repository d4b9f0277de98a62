// Workers and a parameter server on a virtual clock: the policy code of plan/policies, delays from its laws,
// no network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/plan/policies/experiment.h"

namespace yoke::sim {

using plan::Quadratic;

// A worker that is lost and comes back, in virtual seconds.
struct Absence {
  int worker = 0;
  double from = 0;
  double until = 0;  // after `from`; infinity: it does not come back
};

struct PsSimulation : plan::PolicyExperiment {
  std::vector<Absence> absences{};
};

// Of the measured updates, from the end of one update to the end of another: what a run shows in the long
// run.
struct PsOutcome {
  // Counts of staleness 0, 1, …; the last of kBins counts everything from there on.
  static constexpr size_t kBins = 4096;

  int64_t updates = 0;
  int64_t gradients = 0;     // that the updates consumed
  int64_t cancelled = 0;     // minibatches that an update voided
  int64_t pulls = 0;         // of parameters that had changed
  int64_t bytes = 0;         // gradients and pulls; cancelled minibatches send none
  double seconds = 0;        // virtual
  double idle_fraction = 0;  // share of the workers' time spent waiting for the policy
  double mean_staleness = 0;
  std::vector<int64_t> staleness;    // histogram, without empty bins at its end
  std::optional<double> loss_floor;  // mean of F after each update

  double seconds_per_update() const { return seconds / static_cast<double>(updates); }
  double fresh() const;  // share of gradients of staleness 0
};

// The same numbers for the same arguments. Throws ConfigError for a policy that cannot be, a worker whose
// minibatches take no time, and iterates that grow without bound.
PsOutcome simulate_ps(const PsSimulation& simulation);

}  // namespace yoke::sim
