// Averaging now and then on a slow link, on a virtual clock: when each step ends and what has been sent.
//
// All ranks compute equally fast and have one full-duplex link each, which carries one message after the
// other; so one rank stands for all. The rounds are those that the strategy runs (plan/averaging/rounds.h).
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/plan/averaging/rounds.h"

namespace yoke::sim {

struct AveragingRun {
  plan::RoundPlan rounds;
  int ranks = 2;
  int neighbours = 0;          // gossip: messages of a round; 0: rounds are all-reduces
  int64_t pairs_every = 0;     // AD-PSGD: each rank asks for a pair every so many steps; 0: no pairs
  bool gradients = false;      // all-reduced in every step (DDP), or in those up to rounds.after
  bool average_at_end = true;  // of all ranks, once more; not where they are equal by then
  double model_bytes = 0;
  double compute_seconds = 0;       // of a step
  double backward_share = 2.0 / 3;  // of it, behind which gradients travel
};

struct LinkSpeed {
  double bytes_per_second = 12.5e6;
  double latency = 0;  // of a message
};

// At the end of each step, from the start of the run; the last one includes the average at the end.
struct AveragingTrace {
  std::vector<double> seconds;
  std::vector<double> bytes;  // sent by a rank
};

// Of `pairs_every` steps: the share that a rank's link is busy with pairs. Above 1 there would be fewer.
double pairs_load(const AveragingRun& run, const LinkSpeed& link);

AveragingTrace simulate_averaging(const AveragingRun& run, const LinkSpeed& link, int64_t steps);

}  // namespace yoke::sim
