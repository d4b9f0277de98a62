// What fp16 loses of numbers whose exponents are known.
#pragma once

#include <cstddef>
#include <vector>

namespace yoke::cli {

// Exponents of two in fp16: below the first, a number becomes 0; below the second it has fewer digits; from
// the third on it overflows.
inline constexpr int kZeroBelow = -25, kShortBelow = -14, kOverflowFrom = 16;

// Numbers that are not 0, by exponent of two.
struct Exponents {
  int lowest = 0;                // exponent of counts[0]
  std::vector<double> counts{};  // of numbers

  // Shares of the numbers after multiplication by 2^scale.
  double underflow(int scale) const { return share(-kAny, kZeroBelow - scale); }
  double fewer_digits(int scale) const { return share(kZeroBelow - scale, kShortBelow - scale); }
  double overflow(int scale) const { return share(kOverflowFrom - scale, kAny); }

  // With an exponent from `from` up to but not including `to`.
  double share(int from, int to) const {
    double within = 0, all = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const int exponent = lowest + static_cast<int>(i);
      all += counts[i];
      if (exponent >= from && exponent < to) within += counts[i];
    }
    return all > 0 ? within / all : 0;
  }

  static constexpr int kAny = 1000;  // beyond all exponents
};

}  // namespace yoke::cli
