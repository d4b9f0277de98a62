#include "yoke/cluster/coordinator_blame.h"

#include <algorithm>

namespace yoke::cluster {

void Blame::add(Sign sign, const FailureReport& report, int by, double now) {
  if (decided_) return;
  if (evidence_.empty()) due_ = now + kPatience;
  // No better evidence can arrive than what the kernel reported to the launcher.
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

// A rank that reports another rank (or the link) and then exits is not the cause.
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
    // Among equal evidence prefer one that names a rank, then the first.
    return one.report.rank >= 0 && best->report.rank < 0;
  };
  for (const Evidence& one : evidence_)
    if (better(one)) best = &one;
  decided_ = true;
  FailureReport cause = best->report;
  // The launcher knows the exit status of a rank that reported itself
  for (const Evidence& one : evidence_) {
    if (cause.exit_code == 0 && one.report.rank == cause.rank) cause.exit_code = one.report.exit_code;
  }
  return cause;
}

}  // namespace yoke::cluster
