// Filters that leave rows of a pushed gradient out.
//
//   significance  a row is held back, and added to the next gradient of its key, until the largest magnitude
//   of
//                 the sum exceeds a threshold: a row is behind by at most the threshold, also at the end of a
//                 run, when what is held back is dropped
//   random skip   a row is left out with a probability p, the others are divided by 1 - p: the mean of what
//   is
//                 sent is the gradient
//
// Significance comes first. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "yoke/base/data_type.h"
#include "yoke/ps/sparse/fixed_point.h"
#include "yoke/ps/sparse/key_split.h"

namespace yoke::ps::sparse {

struct RowFilterOptions {
  double significant = 0;  // 0: all rows are
  double random_skip = 0;  // probability, below 1
  uint64_t seed = 1;
};

// Of one table.
class RowFilters {
 public:
  // Throws ConfigError for numbers out of range.
  RowFilters(const RowFilterOptions& options, DataType type, int64_t width);

  bool active() const { return options_.significant > 0 || options_.random_skip > 0; }

  struct Rows {
    std::vector<Key> keys;
    std::vector<std::byte> values;
  };
  // What is left of a gradient: keys in the same order, `values` a row for each.
  Rows apply(std::span<const Key> keys, std::span<const std::byte> values);

  // Rows left out so far.
  int64_t held_back() const { return held_back_; }
  int64_t skipped() const { return skipped_; }

 private:
  template <class T>
  Rows apply_to(std::span<const Key> keys, const T* values);
  template <class T>
  bool significant(Key key, T* row);
  bool skip();

  RowFilterOptions options_;
  DataType type_;
  int64_t width_;
  RoundingBits bits_;
  std::unordered_map<Key, std::vector<double>> waiting_;  // sums that were not significant
  int64_t held_back_ = 0, skipped_ = 0;
};

}  // namespace yoke::ps::sparse
