#include "yoke/ps/blocks/local_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::ps::blocks {
namespace {

// Of log(1 + exp(-m)) at a margin m, by one exponential.
struct Slope {
  explicit Slope(double margin) {
    const double e = std::exp(-std::abs(margin));
    down = margin > 0 ? e / (1 + e) : 1 / (1 + e);
    const double near = e * std::numbers::e;  // 1 closer to 0
    curvature = near >= 1 ? 0.25 : near / ((1 + near) * (1 + near));
  }
  double down;       // the first derivative is -down
  double curvature;  // the largest second derivative within 1 of the margin
};

// Finds keys in a sorted list: in the part of it with the same leading bits.
class KeyIndex {
 public:
  KeyIndex(std::span<const Key> sorted, Key below)
      : sorted_(sorted), shift_(std::max(0, static_cast<int>(std::bit_width(below - 1)) - kBits)) {
    starts_.assign(static_cast<size_t>((below - 1) >> shift_) + 2, 0);
    for (Key key : sorted) ++starts_[static_cast<size_t>(key >> shift_) + 1];
    std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  }
  size_t operator[](Key key) const {
    const auto part = static_cast<size_t>(key >> shift_);
    auto first = sorted_.begin() + static_cast<ptrdiff_t>(starts_[part]);
    auto last = sorted_.begin() + static_cast<ptrdiff_t>(starts_[part + 1]);
    return static_cast<size_t>(std::lower_bound(first, last, key) - sorted_.begin());
  }

 private:
  static constexpr int kBits = 20;
  std::span<const Key> sorted_;
  int shift_;
  std::vector<size_t> starts_;
};

}  // namespace

LocalProblem::LocalProblem(const Examples& examples, Key keys, int64_t blocks)
    : all_keys_(keys), blocks_(blocks), margins_(examples.count(), 0), shares_(examples.count(), 0) {
  if (blocks < 1 || static_cast<Key>(blocks) > keys)
    throw ConfigError("{} blocks of {} features: use 1 or more, at most as many as features.", blocks, keys);
  YOKE_CHECK(examples.count() <= std::numeric_limits<uint32_t>::max(), "too many examples");
  keys_ = examples.keys;
  std::sort(keys_.begin(), keys_.end());
  keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
  keys_.shrink_to_fit();
  if (!keys_.empty() && keys_.back() >= keys)
    throw ConfigError("feature {}: there are {}.", keys_.back(), keys);
  const KeyIndex column_of(keys_, keys);
  std::vector<uint32_t> columns(examples.elements());
  offsets_.assign(keys_.size() + 1, 0);
  for (size_t i = 0; i < columns.size(); ++i) {
    columns[i] = static_cast<uint32_t>(column_of[examples.keys[i]]);
    ++offsets_[columns[i] + 1];
  }
  std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
  std::vector<size_t> next(offsets_.begin(), offsets_.end() - 1);
  elements_.resize(columns.size());
  for (size_t example = 0; example < examples.count(); ++example)
    for (size_t i = examples.offsets[example]; i < examples.offsets[example + 1]; ++i)
      elements_[next[columns[i]]++] = {static_cast<uint32_t>(example),
                                       examples.values[i] * static_cast<float>(examples.labels[example])};
  weights_.assign(keys_.size(), 0);
  for (int64_t block = 0; block < blocks_; ++block) {
    auto first = std::lower_bound(keys_.begin(), keys_.end(), block_range(block).begin);
    starts_.push_back(static_cast<size_t>(first - keys_.begin()));
  }
  starts_.push_back(keys_.size());
  overlap_ = measure_overlap();
}

void LocalProblem::reset() {
  std::fill(weights_.begin(), weights_.end(), 0.0);
  std::fill(margins_.begin(), margins_.end(), 0.0);
}

sparse::KeyRange LocalProblem::block_range(int64_t block) const {
  const sparse::KeySplit split{all_keys_, static_cast<int>(blocks_)};
  return {split.begin_of(static_cast<int>(block)), split.begin_of(static_cast<int>(block) + 1)};
}

std::span<const Key> LocalProblem::keys(int64_t block) const {
  const auto [begin, end] = columns(block);
  return std::span(keys_).subspan(begin, end - begin);
}

std::span<const double> LocalProblem::weights(int64_t block) const {
  const auto [begin, end] = columns(block);
  return std::span(weights_).subspan(begin, end - begin);
}

void LocalProblem::derivatives(int64_t block, std::vector<double>& pairs) {
  const auto [begin, end] = columns(block);
  const auto elements = std::span(elements_).subspan(offsets_[begin], offsets_[end] - offsets_[begin]);
  for (const Element& one : elements) shares_[one.example] += std::abs(one.value);
  pairs.assign(2 * (end - begin), 0);
  for (size_t feature = begin; feature < end; ++feature) {
    double g = 0, u = 0;
    for (size_t i = offsets_[feature]; i < offsets_[feature + 1]; ++i) {
      const auto& [example, value] = elements_[i];
      const Slope slope(margins_[example]);
      g -= value * slope.down;
      u += std::abs(value) * shares_[example] * slope.curvature;
    }
    pairs[2 * (feature - begin)] = g;
    pairs[2 * (feature - begin) + 1] = u;
  }
  for (const Element& one : elements) shares_[one.example] = 0;
}

void LocalProblem::set_weights(int64_t block, std::span<const double> weights) {
  const auto [begin, end] = columns(block);
  YOKE_CHECK(weights.size() == end - begin, "{} weights for {} features", weights.size(), end - begin);
  for (size_t feature = begin; feature < end; ++feature) {
    const double change = weights[feature - begin] - weights_[feature];
    if (change == 0) continue;
    weights_[feature] = weights[feature - begin];
    for (size_t i = offsets_[feature]; i < offsets_[feature + 1]; ++i)
      margins_[elements_[i].example] += change * elements_[i].value;
  }
}

double LocalProblem::loss() const {
  double sum = 0;
  for (double margin : margins_)
    sum += margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin;
  return sum;
}

// In the curvature of a block, an example weighs sum_k |x_k| times the share of that sum in the block.
// Changes of another block enter with its share instead.
double LocalProblem::measure_overlap() const {
  if (blocks_ == 1) return 0;
  std::vector<double> whole(margins_.size(), 0);
  for (const Element& one : elements_) whole[one.example] += std::abs(one.value);
  std::vector<double> own(margins_.size(), 0);
  double with_itself = 0, with_all = 0;
  for (int64_t block = 0; block < blocks_; ++block) {
    const auto [begin, end] = columns(block);
    for (size_t i = offsets_[begin]; i < offsets_[end]; ++i)
      own[elements_[i].example] += std::abs(elements_[i].value);
    for (size_t i = offsets_[begin]; i < offsets_[end]; ++i) {
      const auto& [example, value] = elements_[i];
      with_itself += std::abs(value) * own[example];
      with_all += std::abs(value) * whole[example];
    }
    for (size_t i = offsets_[begin]; i < offsets_[end]; ++i) own[elements_[i].example] = 0;
  }
  if (with_itself == 0) return 0;
  return std::max(0.0, with_all / with_itself - 1) / static_cast<double>(blocks_ - 1);
}

size_t LocalProblem::bytes() const {
  return keys_.size() * (sizeof(Key) + sizeof(size_t) + sizeof(double)) + elements_.size() * sizeof(Element) +
         margins_.size() * (sizeof(double) + sizeof(float));
}

}  // namespace yoke::ps::blocks
