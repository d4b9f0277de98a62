// How long a wait spins before it sleeps. A wake-up costs tens of microseconds, so that spinning pays when
// the others are about to come, and is wasted (or keeps the core from them) when they are not.
#pragma once

#include "yoke/base/clock.h"
#include "yoke/comm/shared/futex.h"

namespace yoke::comm::shared {

class Spin {
 public:
  // crowded: more ranks than cores, where spinning only keeps others from running.
  explicit Spin(bool crowded) : window_(crowded ? 0 : kLongest), crowded_(crowded) {}

  double window() const { return window_; }  // seconds

  // What a wait took in all. One that was short enough to have been worth the spinning opens the window
  // again, even when it slept.
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

// Spins until `ready()` or for the window; returns whether it is ready.
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
