// Workers and parameter servers on a virtual clock: the policy code of plan/policies, delays from its laws,
// and links of equal bandwidth, if given.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/plan/policies/experiment.h"

namespace yoke::sim {

using plan::Quadratic;

// A worker that is lost and rejoins, in virtual seconds.
struct Absence {
  int worker = 0;
  double from = 0;
  double until = 0;  // after `from`; infinity: it does not rejoin
};

// A minibatch of a worker, with the virtual time that it took.
struct PsMinibatch {
  int worker = 0;
  double start = 0;
  double end = 0;
  int64_t staleness = 0;   // of its gradient when it was applied
  bool cancelled = false;  // by an update; there is no gradient
};

struct PsSimulation : plan::PolicyExperiment {
  std::vector<Absence> absences{};
  // Bytes per second of each machine's link, in each direction; 0: transfers take no time. A gradient counts
  // when it has arrived.
  double bandwidth = 0;
  int servers = 1;
  // Of the objective: so many independent coordinates, of which losses are the mean, each beginning at
  // `start`.
  int dimensions = 1;
  double start = 0;
  // Gradients of staleness s > 1 count 1/s, as with ps.stale_step = "inverse".
  bool inverse_staleness = false;
  // Observers of everything, warm-up included. on_update gives the K of the updates to come; 0: as before.
  std::function<void(const PsMinibatch&)> on_minibatch{};
  std::function<int64_t(double seconds, double loss)> on_update{};
};

// Statistics of the measured updates, from the end of one update to the end of another: the steady state.
struct PsOutcome {
  // Number of gradients of staleness 0, 1, …; the last of kBins counts all larger ones.
  static constexpr size_t kBins = 4096;

  int64_t updates = 0;
  int64_t gradients = 0;     // consumed by the updates
  int64_t cancelled = 0;     // minibatches cancelled by an update
  int64_t pulls = 0;         // of parameters that had changed
  int64_t bytes = 0;         // gradients and pulls; cancelled minibatches send none
  double seconds = 0;        // virtual
  double idle_fraction = 0;  // fraction of the workers' time spent waiting for the policy
  double mean_staleness = 0;
  std::vector<int64_t> staleness;    // histogram, without trailing empty bins
  std::optional<double> loss_floor;  // mean of F after each update

  double seconds_per_update() const { return seconds / static_cast<double>(updates); }
  double fresh() const;  // fraction of gradients of staleness 0
};

// Deterministic. Throws ConfigError for an invalid policy, a worker whose minibatches take no time, and
// diverging iterates.
PsOutcome simulate_ps(const PsSimulation& simulation);

}  // namespace yoke::sim
