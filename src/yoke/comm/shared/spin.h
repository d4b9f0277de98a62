// How long a wait spins before it sleeps. Waking up costs tens of microseconds, so spinning pays if the other
// ranks arrive soon; otherwise it wastes the core, which they may need.
#pragma once

#include "yoke/base/clock.h"
#include "yoke/comm/shared/futex.h"

namespace yoke::comm::shared {

class Spin {
 public:
  // crowded: more ranks than cores; spinning would only delay the others.
  explicit Spin(bool crowded) : window_(crowded ? 0 : kLongest), crowded_(crowded) {}

  double window() const { return window_; }  // seconds

  // Adapts the window to the duration of a finished wait. A short wait opens the window again, even if it
  // slept.
  void learn(double seconds) {
    if (crowded_) return;
    if (seconds < kWorthIt)
      window_ = kLongest;
    else
      window_ = window_ < kShortest ? 0 : window_ / 2;
  }

 private:
  static constexpr double kLongest = 20e-6;
  static constexpr double kShortest = 2e-6;
  static constexpr double kWorthIt = 100e-6;
  double window_;
  bool crowded_;
};

// Spins until `ready()` is true or the window (seconds) is over; returns whether it is ready.
template <class Ready>
bool spin(double window, const Ready& ready) {
  if (window <= 0) return false;
  double end = now_seconds() + window;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (now_seconds() < end);
  return false;
}

}  // namespace yoke::comm::shared
