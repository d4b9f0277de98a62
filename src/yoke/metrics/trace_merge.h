// The timelines of all ranks as one, with arrows from whom the others waited for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace yoke::metrics {

struct MergedTrace {
  std::filesystem::path path;
  int64_t collectives = 0;  // that all ranks took part in
  // By rank: in how many of them it came last, and how long after the first, on average over all of them.
  std::vector<int64_t> came_last;
  std::vector<double> behind_seconds;

  // The rank that came last in more than half of them, by a time that can be seen (50 us). Empty: none stands
  // out.
  std::optional<int> straggler() const;
  // "rank 1 came last into 83 % of 120 reductions, 1.2 ms behind the first"; empty without a straggler.
  std::string straggler_text() const;
};

// Joins `folder`/rank-*.json, as Trace wrote them, into `folder`/all.json. Empty where there are fewer than
// two. An arrow goes from the rank that came last into a collective to the end of it on every other one.
// Throws ConfigError naming the file and line that cannot be read.
std::optional<MergedTrace> merge_traces(const std::filesystem::path& folder);

}  // namespace yoke::metrics
