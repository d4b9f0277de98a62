// How a gradient is divided among the machines that sum it, by the closed form of BytePS (Jiang et al., OSDI
// 2020).
//
// n workers have a gradient each, k spare machines have none; all have equal links. Every machine sums its
// share for all workers. The shares below load all links equally, which takes the least time. k = 0: the time
// of an all-reduce; k = n: a worker sends and receives the gradient once.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {

// Fractions of the gradient.
struct SummationShares {
  double worker = 0;  // summed on each worker
  double spare = 0;   // summed on each spare machine
  double load = 0;  // sent by the busiest machine, and received by it: the time in units of bytes / bandwidth
};

// Throws ConfigError unless workers >= 1 and 0 <= spares <= workers.
SummationShares summation_shares(int workers, int spares);

// Time of an all-reduce over the workers alone / time with the spare machines, over equal links.
double summation_gain(int workers, int spares);

// The share of machine m (workers first) is weights[m] / (their sum). Throws as summation_shares().
std::vector<int64_t> summation_weights(int workers, int spares);

// `count` elements as waves. A wave is a stretch of the data with one part for each machine, in the ratio of
// their shares, so that machines are loaded equally at all times. A part has at most `largest` elements;
// there are several waves even if one would do, so that sums return while later parts are still sent.
using SummationWave = std::vector<Range>;  // by machine
std::vector<SummationWave> summation_waves(int64_t count, int workers, int spares, int64_t largest);

}  // namespace yoke::plan
