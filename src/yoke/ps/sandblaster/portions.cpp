#include "yoke/ps/sandblaster/portions.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::ps::sandblaster {

Portions::Portions(int64_t count, Backups backups)
    : all_(static_cast<size_t>(count)), backups_(backups), left_(count) {}

double Portions::typical_seconds() const {
  return seconds_[(seconds_.size() - 1) / 2];
}

std::optional<double> Portions::due(const Portion& portion, int worker) const {
  if (backups_ == Backups::kNone || portion.done || seconds_.empty()) return std::nullopt;
  double newest = 0;
  for (const Copy& copy : portion.copies) {
    if (copy.worker == worker) return std::nullopt;
    newest = std::max(newest, copy.since);
  }
  return newest + typical_seconds();
}

std::optional<int64_t> Portions::next(int worker, double now) {
  Portion* best = nullptr;
  if (unopened_ < count()) {
    best = &all_[static_cast<size_t>(unopened_++)];
  } else {
    for (Portion& one : all_) {
      if (one.done) continue;
      const bool given_up = one.copies.empty();
      std::optional<double> when = due(one, worker);
      if (!given_up && (!when || *when > now)) continue;
      if (best == nullptr || one.copies.size() < best->copies.size()) best = &one;
    }
  }
  if (best == nullptr) return std::nullopt;
  if (!best->copies.empty()) ++copies_;
  best->copies.push_back({worker, now});
  return best - all_.data();
}

std::optional<double> Portions::copy_due(int worker) const {
  std::optional<double> first;
  for (const Portion& one : all_)
    if (std::optional<double> when = due(one, worker); when && (!first || *when < *first)) first = when;
  return first;
}

bool Portions::finished(int worker, int64_t portion, double now) {
  YOKE_CHECK(portion >= 0 && portion < count(), "portion {} of {}", portion, count());
  Portion& one = all_[static_cast<size_t>(portion)];
  if (one.done) return false;
  for (const Copy& copy : one.copies)
    if (copy.worker == worker)
      seconds_.insert(std::upper_bound(seconds_.begin(), seconds_.end(), now - copy.since), now - copy.since);
  one.done = true;
  one.copies.clear();
  --left_;
  return true;
}

void Portions::lost(int worker) {
  for (Portion& one : all_)
    std::erase_if(one.copies, [&](const Copy& copy) { return copy.worker == worker; });
}

}  // namespace yoke::ps::sandblaster
