// How long the messenger's thread spins before it sleeps.
//
// Spinning saves the tens of microseconds that waking up costs, if the peer answers meanwhile. If the peer
// waits for this very core, spinning only delays it: windows that end without a message shrink to nothing,
// and one that pays opens them again. Not thread-safe.
#pragma once

namespace yoke::comm::messages {

class SpinWindow {
 public:
  static constexpr double kLongest = 50e-6;
  static constexpr int kTryEvery = 32;  // closed windows

  // Seconds to spin now.
  double seconds() const { return window_ > 0 || turn_ % kTryEvery != kTryEvery - 1 ? window_ : kLongest; }
  // A message came while the thread was spinning.
  void paid() { window_ = kLongest; }
  // The window is over; the thread sleeps.
  void in_vain() {
    window_ = window_ < kShortest ? 0 : window_ / 2;
    ++turn_;
  }

 private:
  static constexpr double kShortest = 4e-6;
  double window_ = kLongest;
  unsigned turn_ = 0;
};

}  // namespace yoke::comm::messages
