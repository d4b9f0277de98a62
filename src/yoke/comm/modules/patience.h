// Waiting for something that can only be asked again and again.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "yoke/base/clock.h"

namespace yoke::comm {

// rest() after every look that found nothing: at first it returns at once or lets others run, later it
// sleeps, longer each time and at most 1 ms, so that a rank that waits for long burns no processor.
class Patience {
 public:
  // `bytes`: what is under way; about as long as that takes, looks stay close together.
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
