// Finds the root cause of a failure: collects evidence for 200 ms after the first sign, and excludes ranks
// that only reacted to a failure of another. Pure logic: no clock, no I/O. Not thread-safe.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "yoke/cluster/failure.h"

namespace yoke::cluster {

class Blame {
 public:
  static constexpr double kPatience = 0.2;  // seconds

  // From the weakest evidence to the strongest.
  enum class Sign {
    kHearsay,    // a rank reports that another is gone, or a timeout
    kLeft,       // a rank waits for one that ended normally
    kLost,       // a connection broke without a goodbye
    kStalled,    // no heartbeat
    kMismatch,   // ranks called different operations
    kExited,     // reported by the launcher: exit status other than 0
    kConfessed,  // a rank reports its own failure
    kKilled,     // reported by the launcher: ended by a signal
  };

  // `by`: the reporting rank; -1: launcher or coordinator. `now`: seconds of a monotonic clock.
  void add(Sign sign, const FailureReport& report, int by, double now);
  void add_report_of_rank(const FailureReport& report, int by, double now);
  void add_report_of_launcher(const FailureReport& report, double now);

  // The rank ended normally after all: drops its broken connection as evidence.
  void retract(int rank);

  bool pending() const { return !evidence_.empty() && !decided_; }
  // Time at which decide() returns the cause; only while pending().
  double due() const { return due_; }
  // Returns the root cause, once, as soon as it is due. `at_once`: with the evidence so far.
  std::optional<FailureReport> decide(double now, bool at_once = false);

 private:
  struct Evidence {
    Sign sign;
    FailureReport report;
    int by;
  };
  bool is_victim(const Evidence& evidence) const;

  std::vector<Evidence> evidence_;
  double due_ = 0;
  bool decided_ = false;
};

}  // namespace yoke::cluster
