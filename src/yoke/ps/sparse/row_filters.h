// Filters that leave rows of a pushed gradient out, one after the other.
//
//   significance  a row is held back, and added to the next gradient of its key, until the largest magnitude
//                 of the sum exceeds a threshold: a row is behind by at most the threshold, also at the end
//                 of a run, when what is held back is dropped
//   random skip   a row is left out with a probability p, the others are divided by 1 - p: the mean of what
//   is
//                 sent is the gradient
//   KKT           with an L1 penalty, a weight of 0 stays 0 if the magnitude of its gradient is at most the
//                 penalty: such rows are left out, judged by this worker's estimate of the whole gradient
//
// Your own filter derives from RowFilter. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/data_type.h"
#include "yoke/ps/sparse/key_split.h"

namespace yoke::ps::sparse {

class RowFilter {
 public:
  virtual ~RowFilter() = default;
  virtual std::string name() const = 0;
  // Whether the row is sent. It may be changed; the next filter sees the change.
  virtual bool passes(Key key, std::span<double> row) = 0;
};

// Throw ConfigError for numbers out of range.
std::unique_ptr<RowFilter> significance_filter(double threshold);
std::unique_ptr<RowFilter> random_skip_filter(double probability, uint64_t seed);

struct KktOptions {
  double l1 = 0;      // of the whole objective
  double margin = 0;  // left out if the estimate is at most l1 - margin
  double scale = 1;   // the gradient of all workers is about this times that of this one
  // Leading values of a row that are derivatives, which have to be small; others follow them.
  int64_t derivatives = 1;
};
// `is_zero`: whether the weights of a key are 0.
std::unique_ptr<RowFilter> kkt_filter(const KktOptions& options, std::function<bool(Key)> is_zero);

// The filters of one table.
class RowFilters {
 public:
  // `width`: values of a row.
  RowFilters(DataType type, int64_t width) : type_(type), width_(width) {}
  void add(std::unique_ptr<RowFilter> filter) { filters_.push_back({std::move(filter), 0}); }

  bool active() const { return !filters_.empty(); }

  struct Rows {
    std::vector<Key> keys;
    std::vector<std::byte> values;
  };
  // What is left of a gradient: keys in the same order, `values` a row for each.
  Rows apply(std::span<const Key> keys, std::span<const std::byte> values);

  // Rows that the filters of this name have left out so far.
  int64_t left_out(const std::string& name) const;

 private:
  struct One {
    std::unique_ptr<RowFilter> filter;
    int64_t left_out;
  };
  template <class T>
  Rows apply_to(std::span<const Key> keys, const T* values);
  bool passes(Key key, std::span<double> row);

  DataType type_;
  int64_t width_;
  std::vector<One> filters_;
};

}  // namespace yoke::ps::sparse
