#include "yoke/parallel/placement/sharded/residency.h"

#include <algorithm>

namespace yoke::parallel {
namespace {

constexpr size_t kLongestPass = 1 << 16;  // forward passes without an end (evaluation) are not remembered

bool contains(const Residency::Units& units, size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

void append_new(Residency::Units& to, const Residency::Units& units) {
  for (size_t unit : units)
    if (!contains(to, unit)) to.push_back(unit);
}

}  // namespace

// A pass that leaves the path is picked up where the trace uses the same units again.
void Residency::advance(const Units& units) {
  for (size_t tried = 0; tried < trace_.size(); ++tried) {
    size_t at = (next_ + tried) % trace_.size();
    if (trace_[at] != units) continue;
    next_ = at + 1;
    return;
  }
  next_ = trace_.size();
}

Residency::Change Residency::use(const Units& units) {
  Units before = recording_.empty() ? Units{} : recording_.back();
  if (before != units) {
    if (recording_.size() < kLongestPass) recording_.push_back(units);
    advance(units);
  }
  Units wanted = units;
  for (int64_t ahead = 0; ahead < prefetch_; ++ahead) {
    size_t at = next_ + static_cast<size_t>(ahead);
    if (at < trace_.size()) append_new(wanted, trace_[at]);
  }
  Units kept = wanted;
  if (trace_.empty())
    append_new(kept, before);  // nothing is known: code that goes back and forth should not thrash
  Change change;
  for (size_t unit : present_)
    if (!keep_ && !contains(kept, unit)) change.release.push_back(unit);
  for (size_t unit : wanted)
    if (!contains(present_, unit)) change.gather.push_back(unit);
  for (size_t unit : change.release) gone(unit);
  append_new(present_, change.gather);
  return change;
}

void Residency::gone(size_t unit) {
  present_.erase(std::remove(present_.begin(), present_.end(), unit), present_.end());
}

bool Residency::present(size_t unit) const {
  return contains(present_, unit);
}

void Residency::end_pass() {
  trace_ = std::move(recording_);
  recording_.clear();
  next_ = 0;
}

}  // namespace yoke::parallel
