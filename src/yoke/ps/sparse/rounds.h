// Rounds of one table on its server: what all workers give for a range of keys at one time, summed and taken
// together.
//
// A range vector clock (a RangeClock for each worker) says up to which time each worker has given its part of
// each range: it finds resends, also of messages that were cut elsewhere, and ranges that are complete. Parts
// of a range may be complete before others. Sums are in worker order. The times of a range ascend. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "yoke/ps/sparse/held.h"
#include "yoke/ps/sparse/range_clock.h"

namespace yoke::ps::sparse {

class Rounds {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 30;  // per worker

  // `keys`: the key space of the table.
  Rounds(Key keys, int workers, DataType type, int64_t width);

  // Takes what `worker` gives: keys ascend within `range`, those left out count as zeros. Returns whether any
  // of it is new. Throws CommError if the worker has too much waiting.
  bool add(int worker, KeyRange range, int64_t time, std::span<const Key> keys,
           std::span<const std::byte> values);
  // Not waited for any more; what it gave counts until it comes back.
  void lose(int worker);
  // Begins again where the others are: what it gave and nobody has taken is dropped.
  void bring_back(int worker);

  struct Complete {
    KeyRange range;
    int64_t time = 0;
    SparseSum sum;
  };
  // What became complete since the last call, in the order of time.
  std::vector<Complete> take();
  // The server of which this is a copy has taken a range. Requires that no worker has given anything here.
  void was_taken(KeyRange range, int64_t time);
  // Drops what was given and not taken: it is given again.
  void forget_given();

  // The time up to which all keys of the range were taken.
  int64_t taken(KeyRange range) const { return taken_.oldest(range); }
  const RangeClock& taken() const { return taken_; }
  // A worker that a round of this range waits for; -1: none.
  int owed_by(KeyRange range, int64_t time) const;

  size_t bytes() const;
  size_t clock_ranges() const;  // of all clocks

 private:
  struct Part {
    KeyRange range;
    int64_t time;
    std::vector<Key> keys;
    std::vector<std::byte> values;
  };
  struct Worker {
    RangeClock clock;
    bool lost = false;
    std::list<Part> parts;  // in the order of their arrival
    size_t bytes = 0;
  };
  static size_t bytes_of(const Part& part);
  void hold(Worker& worker, KeyRange range, int64_t time, std::span<const Key> keys,
            std::span<const std::byte> values);
  bool is_given(const Worker& worker, KeyRange range, int64_t time) const;
  std::vector<KeyRange> complete_parts(KeyRange range, int64_t time) const;
  Complete sum_of(KeyRange range, int64_t time) const;
  void release(KeyRange range, int64_t time);

  DataType type_;
  int64_t width_;
  size_t row_bytes_;
  RangeClock taken_;
  std::vector<Worker> workers_;
  std::map<int64_t, std::vector<KeyRange>> looked_for_;  // by time: ranges that may have become complete
};

}  // namespace yoke::ps::sparse
