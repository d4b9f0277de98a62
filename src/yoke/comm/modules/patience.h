// Back-off for conditions that can only be polled.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "yoke/base/clock.h"

namespace yoke::comm {

// Call rest() after every unsuccessful poll. It first returns immediately, then yields, then sleeps with a
// growing interval of at most 1 ms, so that long waits do not burn a core.
class Patience {
 public:
  // `bytes` in flight: for about their transfer time (at 1 GB/s) it yields instead of sleeping.
  explicit Patience(size_t bytes = 0) : eager_seconds_(50e-6 + static_cast<double>(bytes) / 1e9) {}

  void rest() {
    if (++looks_ < 64) return;
    if (now_seconds() - begin_ < eager_seconds_) {
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(sleep_us_));
    sleep_us_ = std::min(sleep_us_ * 3 / 2, 1000);
  }

 private:
  double eager_seconds_;
  double begin_ = now_seconds();
  int looks_ = 0;
  int sleep_us_ = 20;
};

}  // namespace yoke::comm
