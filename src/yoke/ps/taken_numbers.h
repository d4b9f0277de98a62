// Tracks which sequence numbers of a sender were received, each once, in any order.
//
// A client numbers its pushes to a server 1, 2, 3, …; threads may overtake each other between numbering and
// sending, and a push may be resent. Memory grows with the gaps, not with the numbers: the sender says below
// which number it resends nothing, which closes them. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace yoke::ps {

class TakenNumbers {
 public:
  static constexpr size_t kMostGaps = 4096;

  bool has(int64_t number) const;
  // Requires !has(number) and !full().
  void take(int64_t number);
  // Nothing below `number` is resent: all of it counts as received.
  void settle(int64_t number);
  bool full() const { return runs_.size() >= kMostGaps; }
  size_t gaps() const { return runs_.size(); }

  // See ps/archive.h.
  template <class Archive>
  void exchange(Archive& archive) {
    struct Run {
      int64_t begin, end;
    };
    std::vector<Run> runs;
    for (const auto& [begin, end] : runs_) runs.push_back({begin, end});
    archive(floor_);
    archive(runs);
    runs_.clear();
    for (const Run& run : runs) runs_.emplace(run.begin, run.end);
  }

 private:
  int64_t floor_ = 1;                // everything below was received
  std::map<int64_t, int64_t> runs_;  // disjoint [begin, end) above it
};

}  // namespace yoke::ps
