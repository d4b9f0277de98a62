#include "yoke/report/ticks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace yoke::report {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(NiceTicks, AreStepsOfOneTwoOrFive) {
  EXPECT_THAT(nice_ticks(0, 5), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(nice_ticks(0, 9), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(nice_ticks(0, 23), ElementsAre(0, 5, 10, 15, 20, 25));
  EXPECT_THAT(nice_ticks(-0.3, 0.7), ElementsAre(DoubleEq(-0.4), DoubleEq(-0.2), 0, DoubleEq(0.2),
                                                 DoubleEq(0.4), DoubleEq(0.6), DoubleEq(0.8)));
}

TEST(NiceTicks, CoverWhateverTheyAreGiven) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  const double values[] = {0,     1,      -1,    1e-300, 5e-324,   1e16,     1e16 + 2,
                           1e300, -kHuge, kHuge, NAN,    INFINITY, -INFINITY};
  for (double low : values) {
    for (double high : values) {
      std::vector<double> ticks = nice_ticks(low, high);
      ASSERT_GE(ticks.size(), 2u) << low << " " << high;
      ASSERT_LE(ticks.size(), 12u) << low << " " << high;
      for (size_t i = 1; i < ticks.size(); ++i) ASSERT_LT(ticks[i - 1], ticks[i]) << low << " " << high;
      for (double tick : ticks) ASSERT_TRUE(std::isfinite(tick));
    }
  }
}

TEST(NiceTicks, WidenAnEmptyRange) {
  std::vector<double> ticks = nice_ticks(3, 3);
  EXPECT_LT(ticks.front(), 3);
  EXPECT_GT(ticks.back(), 3);
}

TEST(LogTicks, ArePowersOfTenAndFinerWhereTheRangeIsShort) {
  EXPECT_THAT(log_ticks(0.001, 1000),
              ElementsAre(DoubleEq(1e-3), DoubleEq(1e-2), DoubleEq(1e-1), 1, 10, 100, 1000));
  EXPECT_THAT(log_ticks(1.5, 40), ElementsAre(1, 2, 5, 10, 20, 50));
  EXPECT_THAT(log_ticks(1, 1), ElementsAre(1, 2));
}

TEST(LogTicks, StayFewAndCoverTheRange) {
  for (double low : {1e-300, 1e-7, 0.3, 1.0, 99.0}) {
    for (double factor : {1.0, 1.5, 30.0, 1e5, 1e30}) {
      std::vector<double> ticks = log_ticks(low, low * factor);
      ASSERT_GE(ticks.size(), 2u) << low << " " << factor;
      EXPECT_LE(ticks.size(), 10u) << low << " " << factor;
      EXPECT_LE(ticks.front(), low * (1 + 1e-9));
      EXPECT_GE(ticks.back(), low * factor * (1 - 1e-9));
    }
  }
}

TEST(TickText, SharesTheScaleOfTheLargest) {
  EXPECT_EQ(tick_text(0, 20000, Unit::kNumber), "0");
  EXPECT_EQ(tick_text(5000, 20000, Unit::kNumber), "5k");
  EXPECT_EQ(tick_text(0.1 + 0.2, 1, Unit::kNumber), "0.3");
  EXPECT_EQ(tick_text(2e-5, 1e-4, Unit::kNumber), "2e-5");
  EXPECT_EQ(tick_text(0.85, 1, Unit::kPercent), "85%");
  EXPECT_EQ(tick_text(5e8, 2e9, Unit::kBytes), "0.5 GB");
  EXPECT_EQ(tick_text(0.002, 0.008, Unit::kSeconds), "2 ms");
}

TEST(ValueText, IsForPeople) {
  EXPECT_EQ(value_text(0.31274, Unit::kNumber), "0.3127");
  EXPECT_EQ(value_text(61706, Unit::kNumber), "61,706");
  EXPECT_EQ(value_text(0.9102, Unit::kPercent), "91.02%");
  EXPECT_EQ(value_text(205e6, Unit::kBytes), "205 MB");
  EXPECT_EQ(value_text(0.00703, Unit::kSeconds), "7.03 ms");
  EXPECT_EQ(value_text(123, Unit::kSeconds), "2m 03s");
  EXPECT_EQ(value_text(NAN, Unit::kBytes), "not finite");
}

}  // namespace
}  // namespace yoke::report
