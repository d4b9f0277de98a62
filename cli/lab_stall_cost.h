// What communication costs a step of data parallel training: an all-reduce of the gradients, of which all but
// the last bucket may travel during backward.
#pragma once

#include <algorithm>

namespace yoke::cli {

inline constexpr double kBackwardShare = 2.0 / 3;  // of the computation
inline constexpr double kLastBucket = 25e6;        // bytes that travel after backward has ended

// Seconds of a step.
struct Stall {
  double compute = 0, communication = 0;
  double exposed = 0;  // communication that the step waits for

  double share() const { return exposed / (compute + exposed); }
  double without_overlap() const { return communication / (compute + communication); }
};

inline Stall stall_of(double compute, double all_reduce, double gradient_bytes) {
  const double tail = all_reduce * std::min(1.0, kLastBucket / gradient_bytes);
  return {compute, all_reduce, std::max(tail, all_reduce - kBackwardShare * compute)};
}

}  // namespace yoke::cli
