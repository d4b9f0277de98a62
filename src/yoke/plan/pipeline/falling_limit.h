// The fastest answer of a search that can say whether there is one within a limit: ask for ever lower limits.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace yoke::plan {

// `within(limit)` gives an optional answer whose `seconds` are at most `limit`, empty where there is none;
// who succeeds within a limit succeeds within every higher one. `below`: no answer is as fast as this. Empty:
// there is none at all.
template <typename Within>
auto fastest_within(double below, Within within) -> decltype(within(0.0)) {
  auto found = within(std::numeric_limits<double>::max());  // what is impossible takes infinity
  if (!found) return found;
  auto improve = [&](double limit) {
    auto better = within(limit);
    if (!better) return false;
    found = std::move(better);
    return true;
  };
  while (found->seconds - below > 1e-9 * found->seconds) {
    double middle = below + (found->seconds - below) / 2;
    if (!improve(middle)) below = middle;
  }
  // What is left between the two are prices equal but for rounding; take the last of them.
  for (int i = 0; i < 64 && found->seconds > 0; ++i)
    if (!improve(std::nextafter(found->seconds, 0))) break;
  return found;
}

}  // namespace yoke::plan
