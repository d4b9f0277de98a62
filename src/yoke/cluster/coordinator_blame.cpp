#include "yoke/cluster/coordinator_blame.h"

#include <algorithm>

namespace yoke::cluster {

void Blame::add(Sign sign, const FailureReport& report, int by, double now) {
  if (decided_) return;
  if (evidence_.empty()) due_ = now + kPatience;
  // Nothing better can come than what the kernel told the launcher.
  if (sign == Sign::kKilled) due_ = now;
  evidence_.push_back({sign, report, by});
}

void Blame::add_report_of_rank(const FailureReport& report, int by, double now) {
  Sign sign = Sign::kHearsay;
  if (report.kind == "mismatch")
    sign = Sign::kMismatch;
  else if (report.kind == "stalled")
    sign = Sign::kStalled;
  else if (report.kind == "left")
    sign = Sign::kLeft;
  else if (report.rank == by && report.kind != "lost" && report.kind != "deadline")
    sign = Sign::kConfessed;
  add(sign, report, by, now);
}

void Blame::add_report_of_launcher(const FailureReport& report, double now) {
  Sign sign = Sign::kExited;
  if (report.kind == "killed" || report.kind == "stopped") sign = Sign::kKilled;
  if (report.kind == "lost") sign = Sign::kLost;
  add(sign, report, -1, now);
}

void Blame::retract(int rank) {
  std::erase_if(evidence_,
                [&](const Evidence& one) { return one.sign == Sign::kLost && one.report.rank == rank; });
}

// A rank that complains about another (or about the link) and ends for it is not the cause.
bool Blame::is_victim(const Evidence& evidence) const {
  if (evidence.report.rank < 0 || evidence.sign == Sign::kKilled || evidence.sign == Sign::kConfessed ||
      evidence.sign == Sign::kStalled)
    return false;
  return std::any_of(evidence_.begin(), evidence_.end(), [&](const Evidence& other) {
    return other.by == evidence.report.rank && other.report.rank != evidence.report.rank;
  });
}

std::optional<FailureReport> Blame::decide(double now, bool at_once) {
  if (!pending() || (!at_once && now < due_)) return std::nullopt;
  const Evidence* best = nullptr;
  auto better = [&](const Evidence& one) {
    if (best == nullptr) return true;
    if (is_victim(one) != is_victim(*best)) return is_victim(*best);
    if (one.sign != best->sign) return one.sign > best->sign;
    // Of two that are worth the same, the one that names somebody; else the first that came.
    return one.report.rank >= 0 && best->report.rank < 0;
  };
  for (const Evidence& one : evidence_)
    if (better(one)) best = &one;
  decided_ = true;
  FailureReport cause = best->report;
  for (const Evidence& one : evidence_) {  // the launcher knows the status of one that confessed
    if (cause.exit_code == 0 && one.report.rank == cause.rank) cause.exit_code = one.report.exit_code;
  }
  return cause;
}

}  // namespace yoke::cluster
