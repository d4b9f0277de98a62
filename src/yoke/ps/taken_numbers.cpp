#include "yoke/ps/taken_numbers.h"

#include <algorithm>
#include <iterator>

namespace yoke::ps {

bool TakenNumbers::has(int64_t number) const {
  if (number < floor_) return true;
  auto after = runs_.upper_bound(number);
  return after != runs_.begin() && std::prev(after)->second > number;
}

void TakenNumbers::take(int64_t number) {
  auto after = runs_.upper_bound(number);
  int64_t begin = number, end = number + 1;
  if (after != runs_.end() && after->first == end) {
    end = after->second;
    after = runs_.erase(after);
  }
  if (after != runs_.begin() && std::prev(after)->second == begin) {
    auto before = std::prev(after);
    begin = before->first;
    runs_.erase(before);
  }
  runs_.emplace(begin, end);
  settle(floor_);
}

void TakenNumbers::settle(int64_t number) {
  floor_ = std::max(floor_, number);
  while (!runs_.empty() && runs_.begin()->first <= floor_) {
    floor_ = std::max(floor_, runs_.begin()->second);
    runs_.erase(runs_.begin());
  }
}

}  // namespace yoke::ps
