#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/ps/blocks/examples.h"

namespace yoke::ps::blocks {
namespace {

constexpr int64_t kMostPerExample = 10'000;
enum Stream : uint64_t { kWeights, kExample };

// Spreads neighbours over the key space: a bijection of [0, keys).
class Scatter {
 public:
  explicit Scatter(Key keys) : keys_(keys) {
    factor_ = static_cast<Key>(0.6180339887498949 * static_cast<double>(keys)) | 1;
    while (std::gcd(factor_, keys_) != 1) factor_ += 2;
  }
  Key operator()(Key rank) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<Key>(static_cast<Wide>(rank) * factor_ % keys_);
  }

 private:
  Key keys_, factor_;
};

// A rank from 0 with a density of about (rank + 1)^-exponent, by inversion of the continuous law.
Key power_law_rank(double uniform, double exponent, Key keys) {
  const double most = static_cast<double>(keys) + 1;
  double rank = 0;
  if (std::abs(exponent - 1) < 1e-9) {
    rank = std::pow(most, uniform);
  } else {
    const double power = 1 - exponent;
    rank = std::pow(1 + uniform * (std::pow(most, power) - 1), 1 / power);
  }
  return std::min(keys - 1, static_cast<Key>(rank - 1));
}

void check(const GeneratorOptions& o) {
  if (o.examples < 1 || o.keys < 2 || o.keys > (Key{1} << 52) || o.per_example < 1 ||
      o.per_example > kMostPerExample || !(o.exponent > 0 && o.exponent < 10) || o.informative < 1)
    throw ConfigError(
        "a generator of {} examples with {} of {} features, exponent {}, {} of them informative: out of "
        "range.",
        o.examples, o.per_example, o.keys, o.exponent, o.informative);
}

}  // namespace

Examples generate(const GeneratorOptions& o, int64_t begin, int64_t end) {
  check(o);
  YOKE_CHECK(begin >= 0 && begin <= end && end <= o.examples, "examples {}..{}", begin, end);
  const Scatter scatter(o.keys);
  const auto informative = static_cast<Key>(std::min<int64_t>(o.informative, static_cast<int64_t>(o.keys)));
  std::vector<double> weights(informative);
  Random draw(derive_seed(o.seed, kWeights));
  for (double& weight : weights) weight = 2 * draw.normal();
  Examples made;
  std::vector<Key> ranks;
  for (int64_t i = begin; i < end; ++i) {
    Random random(derive_seed(o.seed, kExample, static_cast<uint64_t>(i)));
    ranks.clear();
    for (int64_t j = 0; j < o.per_example; ++j)
      ranks.push_back(power_law_rank(random.uniform(), o.exponent, o.keys));
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    double score = 0;
    for (Key rank : ranks)
      if (rank < informative) score += weights[rank];
    made.labels.push_back(random.uniform() < 1 / (1 + std::exp(-score)) ? 1 : -1);
    for (Key& rank : ranks) rank = scatter(rank);
    std::sort(ranks.begin(), ranks.end());
    made.keys.insert(made.keys.end(), ranks.begin(), ranks.end());
    made.values.resize(made.keys.size(), 1);
    made.offsets.push_back(made.keys.size());
  }
  return made;
}

}  // namespace yoke::ps::blocks
