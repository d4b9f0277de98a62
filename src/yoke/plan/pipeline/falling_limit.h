// Minimises a search that can only answer "is there a result within this limit?", by bisection.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace yoke::plan {

// `within(limit)` returns a result whose `seconds` are at most `limit`, or nothing; if it succeeds for a
// limit, it succeeds for every higher one. `below`: lower bound that no result attains. Returns nothing if
// there is no result at all.
template <typename Within>
auto fastest_within(double below, Within within) -> decltype(within(0.0)) {
  auto found = within(std::numeric_limits<double>::max());  // impossible results take infinity
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
  // The remaining results differ only by rounding; take the best of them.
  for (int i = 0; i < 64 && found->seconds > 0; ++i)
    if (!improve(std::nextafter(found->seconds, 0))) break;
  return found;
}

}  // namespace yoke::plan
