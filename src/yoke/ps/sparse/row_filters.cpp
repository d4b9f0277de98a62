#include "yoke/ps/sparse/row_filters.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"

namespace yoke::ps::sparse {

RowFilters::RowFilters(const RowFilterOptions& options, DataType type, int64_t width)
    : options_(options), type_(type), width_(width), bits_(options.seed) {
  if (!std::isfinite(options.significant) || options.significant < 0)
    throw ConfigError("ps.significant = {}: use a threshold of 0 or more.", options.significant);
  if (!(options.random_skip >= 0 && options.random_skip < 1))
    throw ConfigError("ps.random_skip = {}: use a probability from 0 to below 1.", options.random_skip);
}

// Adds what was held back to `row`, and holds the sum back unless it is significant.
template <class T>
bool RowFilters::significant(Key key, T* row) {
  if (options_.significant == 0) return true;
  auto found = waiting_.find(key);
  double most = 0;
  for (int64_t i = 0; i < width_; ++i) {
    if (found != waiting_.end()) row[i] += static_cast<T>(found->second[static_cast<size_t>(i)]);
    most = std::max(most, std::abs(static_cast<double>(row[i])));
  }
  if (most > options_.significant) {
    if (found != waiting_.end()) waiting_.erase(found);
    return true;
  }
  waiting_[key].assign(row, row + width_);
  ++held_back_;
  return false;
}

bool RowFilters::skip() {
  if (options_.random_skip == 0 || bits_.next() >= options_.random_skip) return false;
  ++skipped_;
  return true;
}

template <class T>
RowFilters::Rows RowFilters::apply_to(std::span<const Key> keys, const T* values) {
  Rows left;
  std::vector<T> row(static_cast<size_t>(width_));
  const T factor = static_cast<T>(1 / (1 - options_.random_skip));
  for (size_t i = 0; i < keys.size(); ++i) {
    std::copy_n(values + static_cast<int64_t>(i) * width_, width_, row.begin());
    if (!significant(keys[i], row.data()) || skip()) continue;
    for (T& value : row) value *= factor;
    left.keys.push_back(keys[i]);
    const auto bytes = std::as_bytes(std::span<const T>(row));
    left.values.insert(left.values.end(), bytes.begin(), bytes.end());
  }
  return left;
}

RowFilters::Rows RowFilters::apply(std::span<const Key> keys, std::span<const std::byte> values) {
  if (type_ == DataType::kFloat64) return apply_to(keys, reinterpret_cast<const double*>(values.data()));
  return apply_to(keys, reinterpret_cast<const float*>(values.data()));
}

}  // namespace yoke::ps::sparse
