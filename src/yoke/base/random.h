// Random numbers that are the same on every machine and for every standard library.
//
// std::shuffle and the std distributions differ between libraries, which would make runs irreproducible.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace yoke {

// SplitMix64 (Steele, Lea, Flood 2014): a bijective scrambler, also used to derive seeds.
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// An independent seed for `purpose` and `index`, derived from `seed`.
inline uint64_t derive_seed(uint64_t seed, uint64_t purpose, uint64_t index = 0) {
  return mix_bits(mix_bits(mix_bits(seed) ^ purpose) ^ index);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t value = mix_bits(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return value;
  }
  // Uniform in [0, bound), without modulo bias (Lemire 2019). Requires bound > 0.
  uint64_t below(uint64_t bound) {
    auto product = static_cast<Wide>(next()) * bound;
    auto low = static_cast<uint64_t>(product);
    if (low < bound) {
      const uint64_t threshold = -bound % bound;
      while (low < threshold) {
        product = static_cast<Wide>(next()) * bound;
        low = static_cast<uint64_t>(product);
      }
    }
    return static_cast<uint64_t>(product >> 64);
  }
  // Uniform in [0, 1) with 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  // Standard normal (Box and Muller).
  double normal() {
    double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  __extension__ typedef unsigned __int128 Wide;  // not ISO C++, but in every compiler we use
  uint64_t state_;
};

// A uniformly random permutation of 0..count-1 (Fisher and Yates).
inline std::vector<int64_t> random_permutation(int64_t count, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
  Random random(seed);
  for (int64_t i = count - 1; i > 0; --i) {
    auto j = static_cast<size_t>(random.below(static_cast<uint64_t>(i) + 1));
    std::swap(order[static_cast<size_t>(i)], order[j]);
  }
  return order;
}

}  // namespace yoke
