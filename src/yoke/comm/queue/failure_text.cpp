#include "yoke/comm/queue/failure_text.h"

#include <poll.h>

#include "yoke/base/log.h"
#include "yoke/comm/cut_link.h"

namespace yoke::comm {
namespace {

// A data connection may break shortly before the coordinator reports who died and why.
constexpr double kRootCauseSeconds = 0.4;

void wait_for_root_cause(const cluster::Failure& failure) {
  pollfd news{failure.event_fd(), POLLIN, 0};
  Deadline patience = Deadline::after(kRootCauseSeconds);
  while (!failure.set() && !patience.passed()) ::poll(&news, 1, patience.left_ms());
}

cluster::FailureReport own_report(const std::string& what, const char* kind, const JobLink& job) {
  cluster::FailureReport report;
  // The rank in a sub-group would be misleading; the text names the culprit.
  report.rank = -1;
  report.kind = kind;
  report.what = what;
  if (!job.flight_folder.empty()) report.next = fmt::format("See yoke why {}", job.flight_folder.string());
  return report;
}

void tell(const JobLink& job, const cluster::FailureReport& report, const cluster::Wait& wait) {
  if (job.fail)
    job.fail(report, wait);
  else
    job.failure->raise(report);
}

std::string message_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

// The rank at the other end of a link that may be cut; -1: that is not the error.
int beyond_cut_link(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const CutLinkError& error) {
    return error.rank;
  } catch (...) {
    return -1;
  }
}

bool is_mismatch(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const MismatchError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::exception_ptr explain_failure(std::exception_ptr thrown, const Descriptor& descriptor,
                                   const GroupInfo& group, const std::string& backend, const JobLink& job,
                                   const Deadline& deadline, int peer) {
  cluster::Wait wait = wait_of(descriptor, group, peer);
  std::string cause = message_of(thrown);
  const char* kind = "lost";
  if (is_mismatch(thrown)) {
    kind = "mismatch";
    tell(job, own_report(cause, kind, job), wait);
  } else if (const int beyond = beyond_cut_link(thrown); beyond >= 0 && !job.failure->set()) {
    kind = "cut";
    cluster::FailureReport report = own_report(cause, kind, job);
    report.rank = beyond;
    tell(job, report, wait);
  } else if (deadline.passed() && !job.failure->set()) {
    kind = "deadline";
    std::string behind = job.who_is_behind ? job.who_is_behind(static_cast<int64_t>(descriptor.number)) : "";
    cause =
        fmt::format("not complete after {:.3g} s{}{}", deadline.limit(), behind.empty() ? "" : ": ", behind);
    tell(job,
         own_report(fmt::format("{} on group '{}' was {}", descriptor.text(), group.name, cause), kind, job),
         wait);
  }
  // The peer may have closed the connection because it ended normally.
  if (job.look_at && !job.failure->set()) job.look_at(wait);
  wait_for_root_cause(*job.failure);
  if (!job.failure->set()) {
    tell(job, own_report(cause, kind, job), wait);
    job.failure->raise(own_report(cause, kind, job));  // no better cause is known
  }
  cluster::FailureReport report = job.failure->report();
  if (!report.what.empty()) cause = report.what;
  if (!job.flight_folder.empty()) job.recorder->write(job.flight_folder, &report);
  return std::make_exception_ptr(CommError("{} on group '{}' (rank {} of {}, {}): {}{}{}", descriptor.text(),
                                           group.name, group.rank, group.size, backend, cause,
                                           report.next.empty() ? "" : ". ", report.next));
}

}  // namespace yoke::comm
