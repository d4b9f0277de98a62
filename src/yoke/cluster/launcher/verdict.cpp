#include "yoke/cluster/launcher/verdict.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/cluster/launcher/signals.h"

namespace yoke::cluster {
namespace {

std::string next_step(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    int signal = WTERMSIG(wait_status);
    if (signal == SIGKILL) return "The kernel may have killed it because memory ran out: see dmesg.";
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP)
      return "It was terminated; run the job again to resume.";
    return "It crashed. A debugger shows where: `ulimit -c unlimited`, run again, then `gdb PROGRAM core`.";
  }
  switch (WEXITSTATUS(wait_status)) {
    case static_cast<int>(ExitCode::kUsage):
      return "Fix its arguments or configuration; see its last lines.";
    case static_cast<int>(ExitCode::kPeerFailed):
      return "Another rank failed first, perhaps on another machine: see its last lines.";
    case static_cast<int>(ExitCode::kRendezvous):
      return "The ranks did not form the job; its last lines say who is missing or what differs (key, job "
             "id, port).";
    default:
      return "See its last lines.";
  }
}

const ChildEnd* find_rank(const std::vector<const ChildEnd*>& ends, int rank) {
  auto found = std::find_if(ends.begin(), ends.end(), [&](const ChildEnd* end) { return end->rank == rank; });
  return found == ends.end() ? nullptr : *found;
}

// The coordinator's report says more than an exit status if the rank itself sent it, or has not ended.
bool says_more(const FailureReport& known) {
  return known.kind != "lost" && known.kind != "killed" && known.kind != "exited";
}

Verdict blame(const ChildEnd& end, const FailureReport* known, const std::string& host) {
  FailureReport report = report_of(end, host);
  if (known != nullptr && known->rank == end.rank) {
    report.step = known->step;
    if (says_more(*known)) {
      report.kind = known->kind;
      report.what = known->what;
      report.next = known->next;
    }
  }
  return {exit_code_of(end.wait_status), report};
}

}  // namespace

std::string describe_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    int signal = WTERMSIG(wait_status);
    return fmt::format("was killed by signal {} ({})", signal, signal_name(signal));
  }
  return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

FailureReport report_of(const ChildEnd& end, const std::string& host) {
  FailureReport report;
  report.rank = end.rank;
  report.host = host;
  report.pid = end.pid;
  report.kind = WIFSIGNALED(end.wait_status) ? "killed" : "exited";
  report.role = end.role;
  report.what = fmt::format("{} on {} (pid {}) {}", rank_name(end.rank, end.role), host, end.pid,
                            describe_status(end.wait_status));
  report.next = next_step(end.wait_status);
  report.exit_code = exit_code_of(end.wait_status);
  return report;
}

FailureReport stop_report(const ChildEnd& child, const std::string& host) {
  FailureReport report;
  report.rank = child.rank;
  report.host = host;
  report.pid = child.pid;
  report.role = child.role;
  report.kind = "stalled";
  report.what = fmt::format("{} on {} (pid {}) is stopped (SIGSTOP) and does not exit",
                            rank_name(child.rank, child.role), host, child.pid);
  report.next = "Next: find out why it was stopped; the other ranks cannot continue without it.";
  return report;
}

bool is_victim(const ChildEnd& end) {
  return WIFEXITED(end.wait_status) &&
         WEXITSTATUS(end.wait_status) == static_cast<int>(ExitCode::kPeerFailed);
}

Verdict judge(const std::vector<ChildEnd>& ends, const FailureReport* known, const std::string& host) {
  std::vector<const ChildEnd*> culprits;  // failed by themselves
  std::vector<const ChildEnd*> victims;
  for (const ChildEnd& end : ends) {
    if (end.good() || end.asked) continue;
    (is_victim(end) ? victims : culprits).push_back(&end);
  }
  if (known != nullptr) {
    const ChildEnd* named = find_rank(culprits, known->rank);
    if (named == nullptr) named = find_rank(victims, known->rank);
    if (named != nullptr && (!is_victim(*named) || says_more(*known))) return blame(*named, known, host);
    // A stall, a mismatch or another machine: the ranks here are victims.
    bool elsewhere = known->rank >= 0 && named == nullptr;
    if (culprits.empty() || (elsewhere && says_more(*known)))
      return {known->exit_code != 0 ? known->exit_code : static_cast<int>(ExitCode::kPeerFailed), *known};
  }
  if (!culprits.empty()) return blame(*culprits.front(), known, host);
  if (!victims.empty()) return blame(*victims.front(), known, host);
  for (const ChildEnd& end : ends) {
    if (!end.good()) return {exit_code_of(end.wait_status), report_of(end, host)};
  }
  return {};
}

}  // namespace yoke::cluster
