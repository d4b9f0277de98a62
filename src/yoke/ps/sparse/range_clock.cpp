#include "yoke/ps/sparse/range_clock.h"

#include <algorithm>
#include <iterator>

#include "yoke/base/error.h"

namespace yoke::ps::sparse {

// Makes `key` the begin of a range.
RangeClock::Times::iterator RangeClock::cut(Key key) {
  auto after = times_.upper_bound(key);
  auto holds = std::prev(after);
  if (key == end_ || holds->first == key) return key == end_ ? times_.end() : holds;
  return times_.emplace_hint(after, key, holds->second);
}

// With the range before it.
void RangeClock::join(Times::iterator at) {
  if (at == times_.end() || at == times_.begin() || std::prev(at)->second != at->second) return;
  times_.erase(at);
}

void RangeClock::set(KeyRange range, int64_t time) {
  YOKE_CHECK(!range.empty() && range.end <= end_, "range {}..{} of {} keys", range.begin, range.end, end_);
  auto behind = cut(range.end);
  auto first = cut(range.begin);
  first->second = time;
  times_.erase(std::next(first), behind);
  join(behind);
  join(first);
}

std::vector<RangeClock::Timed> RangeClock::within(KeyRange range) const {
  YOKE_CHECK(!range.empty() && range.end <= end_, "range {}..{} of {} keys", range.begin, range.end, end_);
  std::vector<Timed> found;
  for (auto at = std::prev(times_.upper_bound(range.begin)); at != times_.end() && at->first < range.end;
       ++at) {
    const auto next = std::next(at);
    const Key end = next == times_.end() ? end_ : next->first;
    found.push_back({{std::max(at->first, range.begin), std::min(end, range.end)}, at->second});
  }
  return found;
}

int64_t RangeClock::oldest(KeyRange range) const {
  auto all = within(range);
  return std::min_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.time < b.time; })->time;
}

int64_t RangeClock::newest(KeyRange range) const {
  auto all = within(range);
  return std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.time < b.time; })->time;
}

}  // namespace yoke::ps::sparse
