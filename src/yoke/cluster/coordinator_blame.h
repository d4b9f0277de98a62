// Who is to blame when a job ends: collects what is known for 200 ms after the first sign, and subtracts the
// victims. No clock and no I/O of its own.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "yoke/cluster/failure.h"

namespace yoke::cluster {

class Blame {
 public:
  static constexpr double kPatience = 0.2;  // seconds

  // From the weakest sign to the strongest.
  enum class Sign {
    kHearsay,    // a rank says that another is gone, or that it waited too long
    kLeft,       // a rank waits for one that ended in good order
    kLost,       // the connection to a rank broke without a word
    kStalled,    // no sign of life
    kMismatch,   // ranks disagree
    kExited,     // the launcher: it ended with a status other than 0
    kConfessed,  // a rank says that it fails itself
    kKilled,     // the launcher: ended by a signal
  };

  // `by`: the rank that says so; -1: launcher or coordinator. `now` in seconds of one clock.
  void add(Sign sign, const FailureReport& report, int by, double now);
  void add_report_of_rank(const FailureReport& report, int by, double now);
  void add_report_of_launcher(const FailureReport& report, double now);

  // The rank ended well after all: its broken connection is no sign of anything.
  void retract(int rank);

  bool pending() const { return !evidence_.empty() && !decided_; }
  // When decide() will have something to say; only while pending().
  double due() const { return due_; }
  // The root cause, once and as soon as it is due. `at_once`: with what is known now.
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
