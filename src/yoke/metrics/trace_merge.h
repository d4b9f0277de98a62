// Merges the timelines of all ranks, with arrows from the ranks that others waited for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace yoke::metrics {

struct MergedTrace {
  std::filesystem::path path;
  int64_t collectives = 0;  // with all ranks
  // By rank: number of collectives in which it was last, and mean delay after the first.
  std::vector<int64_t> came_last;
  std::vector<double> behind_seconds;

  // The rank that was last in more than half of them, by a noticeable time (50 us). Empty: none.
  std::optional<int> straggler() const;
  // "rank 1 came last into 83 % of 120 reductions, 1.2 ms behind the first"; empty without a straggler.
  std::string straggler_text() const;
};

// Merges `folder`/rank-*.json, as written by Trace, into `folder`/all.json. Empty if there are fewer than
// two. Arrows lead from the rank that entered a collective last to its end on every other rank. Throws
// ConfigError naming file and line.
std::optional<MergedTrace> merge_traces(const std::filesystem::path& folder);

}  // namespace yoke::metrics
