// Finds the rank that made the job fail: not the first one seen, but the one that failed by itself.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"

namespace yoke::cluster {

// How a rank of this machine ended, in the order of observation.
struct ChildEnd {
  int rank = 0;
  pid_t pid = 0;
  int wait_status = 0;
  bool asked = false;     // after a signal from the launcher
  bool forgiven = false;  // the job continues without it
  std::string role{};     // as reported by the rank

  bool good() const { return wait_status == 0 || forgiven; }
};

// "exited with code 7", "was killed by signal 9 (SIGKILL)".
std::string describe_status(int wait_status);
// As in shells: the exit code, or 128 + n for signals.
int exit_code_of(int wait_status);

// Report to the coordinator about a rank that failed by itself.
FailureReport report_of(const ChildEnd& end, const std::string& host);

// Report about a rank that is stopped (SIGSTOP) and does not exit.
FailureReport stop_report(const ChildEnd& child, const std::string& host);

// It exited with "a peer failed" (3): a victim, as long as another culprit is known.
bool is_victim(const ChildEnd& end);

struct Verdict {
  int exit_code = 0;
  std::optional<FailureReport> failure;  // empty: all ended normally
};

// `known`: the cause held by the coordinator, or nullptr. Rules: ranks that failed by themselves come before
// victims; the coordinator decides among several, and knows of stalls, mismatches and other machines; a
// victim is blamed only if there is nobody else.
Verdict judge(const std::vector<ChildEnd>& ends, const FailureReport* known, const std::string& host);

}  // namespace yoke::cluster
