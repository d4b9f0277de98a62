// How long an operation that waits for its peers looks again and again before it sleeps.
//
// Waking up takes 5 us on an idle server and 300 us on a virtual machine whose cores have halted: more than a
// small message on its way. Looking on pays when the peer runs beside us, and takes its core where it does
// not. Both show: a wait that ends while we look opens the window, one that outlasts it halves it, down to
// nothing.
#pragma once

namespace yoke::comm::tcp {

class Patience {
 public:
  // crowded: more ranks than cores.
  explicit Patience(bool crowded) : crowded_(crowded), window_(crowded ? 0 : kLongest) {}

  double window() const { return window_; }  // seconds

  // The wait ended within the window.
  void worked() { window_ = crowded_ ? 0 : kLongest; }

  // It did not. Where nothing has worked for a while the long window is tried again now and then: the
  // neighbours may have become quiet.
  void failed() {
    if (crowded_) return;
    if (window_ == 0 && ++failures_ % kTryEvery == 0)
      window_ = kLongest;
    else
      window_ = window_ < 2 * kShortest ? 0 : window_ / 2;
  }

 private:
  static constexpr double kLongest = 200e-6;
  static constexpr double kShortest = 20e-6;
  static constexpr int kTryEvery = 32;
  const bool crowded_;
  double window_;
  int failures_ = 0;
};

}  // namespace yoke::comm::tcp
