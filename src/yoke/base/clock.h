// Monotonic time for measuring. Wall-clock time is only for file names and event files.
#pragma once

#include <chrono>
#include <cstdint>

namespace yoke {

// Seconds of a monotonic clock with an arbitrary zero.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds since 1970, for people and event files.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Stopwatch {
 public:
  double seconds() const { return now_seconds() - start_; }
  // Seconds since the start or the last lap.
  double lap() {
    double now = now_seconds();
    double elapsed = now - start_;
    start_ = now;
    return elapsed;
  }

 private:
  double start_ = now_seconds();
};

}  // namespace yoke
