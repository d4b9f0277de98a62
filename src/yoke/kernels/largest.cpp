// Top-k by a histogram of the leading bits: two passes over the values, no sorting.
#include <algorithm>
#include <bit>
#include <functional>
#include <vector>

#include "yoke/kernels/compress.h"

namespace yoke::kernels {
namespace {

// Magnitudes as integers are in the same order, with NaN above all.
struct FloatKey {
  using Bits = uint32_t;
  static constexpr int kShift = 19;  // the exponent and four bits more
  static constexpr size_t kBins = 4096;
  static Bits of(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }
};
struct DoubleKey {
  using Bits = uint64_t;
  static constexpr int kShift = 48;
  static constexpr size_t kBins = 32768;
  static Bits of(double x) { return std::bit_cast<uint64_t>(x) & 0x7fffffffffffffffu; }
};

template <class Key, class T>
std::vector<int64_t> histogram_of(const T* x, int64_t count) {
  // Neighbours use different tables: an addition to a bin need not wait for the previous one.
  constexpr int64_t kTables = 4;
  std::vector<int64_t> bins(kTables * Key::kBins);
  int64_t i = 0;
  for (; i + kTables <= count; i += kTables)
    for (int64_t t = 0; t < kTables; ++t)
      ++bins[static_cast<size_t>(t) * Key::kBins + (Key::of(x[i + t]) >> Key::kShift)];
  for (; i < count; ++i) ++bins[Key::of(x[i]) >> Key::kShift];
  for (size_t t = 1; t < kTables; ++t)
    for (size_t bin = 0; bin < Key::kBins; ++bin) bins[bin] += bins[t * Key::kBins + bin];
  bins.resize(Key::kBins);
  return bins;
}

struct Border {
  size_t bin;      // contains the smallest kept value
  int64_t wanted;  // number of values kept of it
};

Border border_of(const std::vector<int64_t>& bins, int64_t kept) {
  size_t bin = bins.size() - 1;
  while (bins[bin] < kept) kept -= bins[bin--];
  return {bin, kept};
}

template <class Key, class T>
void find_largest(const T* x, int64_t count, int64_t kept, int32_t* places) {
  using Bits = typename Key::Bits;
  std::vector<int64_t> bins = histogram_of<Key>(x, count);
  Border border = border_of(bins, kept);
  // Values above the border's bin are kept; of the bin itself, the largest.
  const Bits lowest = static_cast<Bits>(border.bin) << Key::kShift;
  constexpr int64_t kBlock = 32;
  std::vector<int32_t> candidates;
  candidates.reserve(static_cast<size_t>(kept - border.wanted + bins[border.bin]));
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t end = std::min(begin + kBlock, count);
    Bits largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, Key::of(x[i]));
    if (largest < lowest) continue;
    for (int64_t i = begin; i < end; ++i)
      if (Key::of(x[i]) >= lowest) candidates.push_back(static_cast<int32_t>(i));
  }
  std::vector<Bits> keys;
  for (int32_t place : candidates)
    if (Bits key = Key::of(x[place]); (key >> Key::kShift) == border.bin) keys.push_back(key);
  auto last = keys.begin() + (border.wanted - 1);
  std::nth_element(keys.begin(), last, keys.end(), std::greater<>());
  Bits smallest = *last;
  int64_t equals =
      border.wanted - std::count_if(keys.begin(), last, [&](Bits key) { return key > smallest; });
  for (int32_t place : candidates) {
    Bits key = Key::of(x[place]);
    if (key > smallest || (key == smallest && equals-- > 0)) *places++ = place;
  }
}

}  // namespace

void largest_magnitudes(const float* x, int64_t count, int64_t kept, int32_t* places) {
  find_largest<FloatKey>(x, count, kept, places);
}
void largest_magnitudes(const double* x, int64_t count, int64_t kept, int32_t* places) {
  find_largest<DoubleKey>(x, count, kept, places);
}

}  // namespace yoke::kernels
