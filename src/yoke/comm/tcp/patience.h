// How long an operation spins (with sched_yield) before it sleeps.
//
// A wake-up takes 5 us on an idle server and 300 us on a virtual machine whose cores have halted, much longer
// than a small message takes: there spinning pays. If other processes want the core, spinning costs us our
// own share, and wake-ups are fast because no core has halted. The long window is therefore for small
// messages on cores that nobody else wants.
#pragma once

#include <algorithm>

namespace yoke::comm::tcp {

class Patience {
 public:
  // Seconds; cheaper than a sleep everywhere.
  static constexpr double kShort = 30e-6;

  // crowded: more ranks than cores; spinning would only delay the others.
  explicit Patience(bool crowded) : crowded_(crowded) {}

  // Seconds. `small`: the operation sends little data. For large ones the wait is for the network, and the
  // core is better left to computation.
  double window(bool small) const { return crowded_ ? 0 : small ? window_ : kShort; }

  // A wait that ended within the window opens it again, one that outlasted it halves it. `preemptions`:
  // involuntary context switches of this thread so far; after one the next kQuiet waits are short.
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
