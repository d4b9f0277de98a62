#include "cli/lab_exponents.h"

#include <gtest/gtest.h>

#include <cmath>

#include "yoke/kernels/reduce_half.h"

namespace yoke::cli {
namespace {

// One number of each exponent from -30 to 19.
Exponents one_of_each() {
  return {.lowest = -30, .counts = std::vector<double>(50, 1)};
}

TEST(Exponents, CountWhatFp16Loses) {
  const Exponents all = one_of_each();
  EXPECT_DOUBLE_EQ(all.underflow(0), 5 / 50.0);      // -30 … -26
  EXPECT_DOUBLE_EQ(all.fewer_digits(0), 11 / 50.0);  // -25 … -15
  EXPECT_DOUBLE_EQ(all.overflow(0), 4 / 50.0);       // 16 … 19
  EXPECT_DOUBLE_EQ(all.underflow(3), 2 / 50.0);
  EXPECT_DOUBLE_EQ(all.overflow(3), 7 / 50.0);
  EXPECT_DOUBLE_EQ(all.underflow(24), 0);
  EXPECT_DOUBLE_EQ(Exponents{}.underflow(0), 0);
}

TEST(Exponents, AgreeWithAConversionToFp16) {
  const Exponents all = one_of_each();
  for (int scale : {0, 8, 16}) {
    double zeros = 0, infinite = 0, changed = 0;
    for (size_t i = 0; i < all.counts.size(); ++i) {
      // Uses the last digit of fp16.
      const float number =
          std::ldexp(1.75f + std::ldexp(1.0f, -10), all.lowest + static_cast<int>(i) + scale);
      const float half = kernels::float_of_fp16(kernels::fp16_of_float(number));
      zeros += half == 0;
      infinite += std::isinf(half);
      changed += half != 0 && !std::isinf(half) && half != number;
    }
    EXPECT_DOUBLE_EQ(all.underflow(scale), zeros / 50) << scale;
    EXPECT_DOUBLE_EQ(all.overflow(scale), infinite / 50) << scale;
    EXPECT_DOUBLE_EQ(all.fewer_digits(scale), changed / 50) << scale;
  }
}

}  // namespace
}  // namespace yoke::cli
