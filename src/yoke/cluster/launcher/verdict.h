// Who made the job fail: not who was seen first, but who failed by itself.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"

namespace yoke::cluster {

// How a rank of this machine ended, in the order in which it was seen.
struct ChildEnd {
  int rank = 0;
  pid_t pid = 0;
  int wait_status = 0;
  bool asked = false;     // the launcher had signalled it before
  bool forgiven = false;  // the job goes on without it
  std::string role{};     // as it called itself

  bool good() const { return wait_status == 0 || forgiven; }
};

// "exited with code 7", "was killed by signal 9 (SIGKILL)".
std::string describe_status(int wait_status);
// As shells count: the code, or 128 + n for signals.
int exit_code_of(int wait_status);

// What the launcher tells the coordinator about a rank that ended badly by itself.
FailureReport report_of(const ChildEnd& end, const std::string& host);

// Likewise about one that is stopped (SIGSTOP) and does not end.
FailureReport stop_report(const ChildEnd& child, const std::string& host);

// Ended with "a peer failed" (3): it is a victim as long as there is anybody else.
bool is_victim(const ChildEnd& end);

struct Verdict {
  int exit_code = 0;
  std::optional<FailureReport> failure;  // absent: all ended well
};

// `known` is what the coordinator holds for the cause, where there is one. Rules: a rank that failed by
// itself and is no victim comes first; the coordinator's word decides among several and knows of stalls,
// disagreements and other machines; victims are only blamed when nobody else can be.
Verdict judge(const std::vector<ChildEnd>& ends, const FailureReport* known, const std::string& host);

}  // namespace yoke::cluster
