#include "yoke/ps/sparse/row_filters.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/fixed_point.h"

namespace yoke::ps::sparse {
namespace {

class Significance final : public RowFilter {
 public:
  explicit Significance(double threshold) : threshold_(threshold) {}
  std::string name() const override { return "significance"; }
  bool passes(Key key, std::span<double> row) override {
    auto found = waiting_.find(key);
    double most = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      if (found != waiting_.end()) row[i] += found->second[i];
      most = std::max(most, std::abs(row[i]));
    }
    if (most <= threshold_) {
      waiting_[key].assign(row.begin(), row.end());
      return false;
    }
    if (found != waiting_.end()) waiting_.erase(found);
    return true;
  }

 private:
  double threshold_;
  std::unordered_map<Key, std::vector<double>> waiting_;  // sums that were not significant
};

class RandomSkip final : public RowFilter {
 public:
  RandomSkip(double probability, uint64_t seed) : probability_(probability), bits_(seed) {}
  std::string name() const override { return "random_skip"; }
  bool passes(Key, std::span<double> row) override {
    if (bits_.next() < probability_) return false;
    for (double& value : row) value *= 1 / (1 - probability_);
    return true;
  }

 private:
  double probability_;
  RoundingBits bits_;
};

class Kkt final : public RowFilter {
 public:
  Kkt(const KktOptions& options, std::function<bool(Key)> is_zero)
      : options_(options), is_zero_(std::move(is_zero)) {}
  std::string name() const override { return "kkt"; }
  bool passes(Key key, std::span<double> row) override {
    const double least = (options_.l1 - options_.margin) / options_.scale;
    const auto derivatives = row.first(std::min(row.size(), static_cast<size_t>(options_.derivatives)));
    const bool moves = std::any_of(derivatives.begin(), derivatives.end(),
                                   [&](double one) { return std::abs(one) > least; });
    return moves || !is_zero_(key);
  }

 private:
  KktOptions options_;
  std::function<bool(Key)> is_zero_;
};

}  // namespace

std::unique_ptr<RowFilter> significance_filter(double threshold) {
  if (!std::isfinite(threshold) || threshold < 0)
    throw ConfigError("ps.significant = {}: use a threshold of 0 or more.", threshold);
  return std::make_unique<Significance>(threshold);
}

std::unique_ptr<RowFilter> random_skip_filter(double probability, uint64_t seed) {
  if (!(probability >= 0 && probability < 1))
    throw ConfigError("ps.random_skip = {}: use a probability from 0 to below 1.", probability);
  return std::make_unique<RandomSkip>(probability, seed);
}

std::unique_ptr<RowFilter> kkt_filter(const KktOptions& options, std::function<bool(Key)> is_zero) {
  if (!std::isfinite(options.l1) || options.l1 < 0 || !std::isfinite(options.margin) ||
      !std::isfinite(options.scale) || options.scale <= 0 || options.derivatives < 1 || !is_zero)
    throw ConfigError("KKT filter with an L1 penalty of {}, a margin of {} and a scale of {}: out of range.",
                      options.l1, options.margin, options.scale);
  return std::make_unique<Kkt>(options, std::move(is_zero));
}

bool RowFilters::passes(Key key, std::span<double> row) {
  for (One& one : filters_) {
    if (one.filter->passes(key, row)) continue;
    ++one.left_out;
    return false;
  }
  return true;
}

template <class T>
RowFilters::Rows RowFilters::apply_to(std::span<const Key> keys, const T* values) {
  Rows left;
  std::vector<double> row(static_cast<size_t>(width_));
  std::vector<T> sent(row.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    std::copy_n(values + static_cast<int64_t>(i) * width_, width_, row.begin());
    if (!passes(keys[i], row)) continue;
    std::transform(row.begin(), row.end(), sent.begin(), [](double value) { return static_cast<T>(value); });
    left.keys.push_back(keys[i]);
    const auto bytes = std::as_bytes(std::span<const T>(sent));
    left.values.insert(left.values.end(), bytes.begin(), bytes.end());
  }
  return left;
}

RowFilters::Rows RowFilters::apply(std::span<const Key> keys, std::span<const std::byte> values) {
  if (type_ == DataType::kFloat64) return apply_to(keys, reinterpret_cast<const double*>(values.data()));
  return apply_to(keys, reinterpret_cast<const float*>(values.data()));
}

int64_t RowFilters::left_out(const std::string& name) const {
  int64_t rows = 0;
  for (const One& one : filters_)
    if (one.filter->name() == name) rows += one.left_out;
  return rows;
}

}  // namespace yoke::ps::sparse
