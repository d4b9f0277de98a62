// The time up to which each key was heard of, by ranges: a range vector clock has one of these for each
// worker.
//
// Disjoint ranges cover the keys [0, end), each with one time. Setting the time of a range cuts those at its
// ends, into at most three; neighbours with equal times are joined. Space grows with the ranges that were
// named, not with the keys. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "yoke/ps/sparse/key_split.h"

namespace yoke::ps::sparse {

// Keys from `begin` to below `end`.
struct KeyRange {
  Key begin = 0;
  Key end = kMostKeys;
  bool empty() const { return begin >= end; }
  bool operator==(const KeyRange&) const = default;
};

class RangeClock {
 public:
  // One range, at `time`. Requires end > 0.
  explicit RangeClock(Key end = kMostKeys, int64_t time = 0) : end_(end) { times_[0] = time; }

  // Ranges below must not be empty, and must end at or before the last key.
  void set(KeyRange range, int64_t time);
  int64_t oldest(KeyRange range) const;
  int64_t newest(KeyRange range) const;

  struct Timed {
    KeyRange range;
    int64_t time = 0;
    bool operator==(const Timed&) const = default;
  };
  // The ranges that meet this one, cut at its ends.
  std::vector<Timed> within(KeyRange range) const;
  std::vector<Timed> all() const { return within({0, end_}); }
  size_t size() const { return times_.size(); }

 private:
  using Times = std::map<Key, int64_t>;
  Times::iterator cut(Key key);
  void join(Times::iterator at);

  Key end_;
  Times times_;  // by the begin of its range
};

}  // namespace yoke::ps::sparse
