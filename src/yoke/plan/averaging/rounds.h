// When replicas average parameters: the steps at which a round begins and ends, as the strategy runs them and
// the simulator counts them.
//
// The model lies in fragments that take turns: each has a round every `every` steps, evenly spread, so that
// at most one begins in a step. A round that overlaps with training begins after one step and ends `overlap`
// steps later.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace yoke::plan {

struct RoundPlan {
  int64_t every = 1;      // H
  int64_t fragments = 1;  // at most `every`
  int64_t overlap = 0;    // at most `every`
  int64_t after = 0;      // no round in the first steps
  bool never = false;     // once at the end only

  // The fragment whose round begins, or ends, after step `step` (counted from 1).
  std::optional<int> begins(int64_t step) const {
    if (never || step <= after) return std::nullopt;
    // Fragment f at the steps that leave the remainder f * every / fragments, rounded down.
    const int64_t at = step % every, fragment = (at * fragments + every - 1) / every;
    if (fragment >= fragments || fragment * every / fragments != at) return std::nullopt;
    return static_cast<int>(fragment);
  }
  std::optional<int> ends(int64_t step) const { return begins(step - overlap); }
};

}  // namespace yoke::plan
