// Which numbers of a sender were taken: each once, in whatever order they come.
//
// A client numbers its pushes to a server 1, 2, 3, …; threads overtake each other between numbering and
// sending, and a push may be sent again. Memory grows with the gaps between what was taken, not with the
// numbers: a sender says below which number it sends nothing again, and that closes them. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace yoke::ps {

class TakenNumbers {
 public:
  static constexpr size_t kMostGaps = 4096;

  bool has(int64_t number) const;
  // Requires !has(number) and !full().
  void take(int64_t number);
  // Nothing below `number` is sent again: all of it counts as taken.
  void settle(int64_t number);
  bool full() const { return runs_.size() >= kMostGaps; }
  size_t gaps() const { return runs_.size(); }

 private:
  int64_t floor_ = 1;                // everything below is taken
  std::map<int64_t, int64_t> runs_;  // [begin, end) above it, not adjacent
};

}  // namespace yoke::ps
