// How long an operation that waits for its peers looks again and again before it sleeps.
//
// Waking up takes 5 us on an idle server and 300 us on a virtual machine whose cores have halted, far longer
// than a small message is on its way: there looking on pays. Where others want the core it takes from our own
// share, and a wake-up is quick because nothing has halted. So the long window is for small messages on cores
// that nobody else wants.
#pragma once

#include <algorithm>

namespace yoke::comm::tcp {

class Patience {
 public:
  // Worth the price of a sleep everywhere; seconds.
  static constexpr double kShort = 30e-6;

  // crowded: more ranks than cores, where looking on only keeps others from running.
  explicit Patience(bool crowded) : crowded_(crowded) {}

  // Seconds. `small`: little is sent. Otherwise the wait is for the wire, and the core is better left to
  // whoever computes.
  double window(bool small) const { return crowded_ ? 0 : small ? window_ : kShort; }

  // A wait that ended within the window opens it again, one that outlasted it halves it. `preemptions`: how
  // often this thread has had to leave its core so far; after each the next waits are short.
  void learn(bool within, long preemptions) {
    bool wanted = preemptions != preemptions_;
    preemptions_ = preemptions;
    quiet_ = wanted ? 0 : std::min(quiet_ + 1, kQuiet);
    if (quiet_ < kQuiet)
      window_ = kShort;
    else
      window_ = within ? kLong : std::max(kShort, window_ / 2);
  }

 private:
  static constexpr double kLong = 200e-6;
  static constexpr int kQuiet = 4;  // waits
  const bool crowded_;
  double window_ = kLong;
  long preemptions_ = 0;
  int quiet_ = kQuiet;
};

}  // namespace yoke::comm::tcp
