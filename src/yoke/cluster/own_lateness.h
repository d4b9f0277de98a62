// A thread that watches others for silence, and on a suspended or overloaded machine is itself too late to
// hear them.
#pragma once

#include <algorithm>
#include <cmath>

namespace yoke::cluster {

class OwnLateness {
 public:
  // `interval`: the most seconds between two looks of a thread that is in time.
  explicit OwnLateness(double interval) : interval_(interval) {}

  // To be called after each wait. Returns the seconds for which nobody else is to blame.
  double look(double now) {
    double passed = last_ < 0 ? 0 : now - last_;
    double late = std::max(0.0, passed - interval_);
    worst_ = std::max(worst_ * std::exp2(-passed / kHalfLife), late);
    last_ = now;
    return late;
  }

  // Seconds to wait for others beyond the usual, after recent lateness: they probably share the machine or
  // its load.
  double allowance() const { return std::min(kMostAllowed, kFactor * worst_); }

 private:
  static constexpr double kHalfLife = 5, kFactor = 3, kMostAllowed = 10;  // seconds, times, seconds
  double interval_;
  double last_ = -1;
  double worst_ = 0;
};

}  // namespace yoke::cluster
