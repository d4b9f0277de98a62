#include "cli/lab_roofline.h"

#include <gtest/gtest.h>

namespace yoke::cli {
namespace {

TEST(Roofline, IsTheLowerOfPeakAndBandwidth) {
  const Roofline roof{.peak = 100, .bandwidth = 10};
  EXPECT_EQ(roof.at(1), 10);
  EXPECT_EQ(roof.at(10), 100);
  EXPECT_EQ(roof.at(1000), 100);
}

TEST(Roofline, WeightsAreReadOnceForAllSamplesOfABatch) {
  const StepCost cost{.flops = 1000, .activation_bytes = 10, .parameter_bytes = 100, .optimizer_bytes = 50};
  EXPECT_EQ(cost.bytes(1), 50 + 600 + 100);
  EXPECT_EQ(cost.bytes(10), 500 + 600 + 100);
  EXPECT_GT(cost.intensity(10), cost.intensity(1));
  EXPECT_LT(cost.intensity(1e9), 1000.0 / 50 + 1e-3);  // where only activations matter
  EXPECT_LT(cost.bytes(10, /*width=*/0.5), cost.bytes(10));
}

TEST(Roofline, BoundsTheSamplesPerSecond) {
  const StepCost cost{.flops = 1000, .activation_bytes = 20};
  EXPECT_DOUBLE_EQ((Roofline{.peak = 1e6, .bandwidth = 1e9}.samples_per_s(cost, 8)), 1000);
  EXPECT_DOUBLE_EQ((Roofline{.peak = 1e6, .bandwidth = 1e3}.samples_per_s(cost, 8)), 10);
}

TEST(BatchLine, KneeIsWhereTheSpeedReachesItsShareOfTheLimit) {
  const BatchLine line{.fixed = 1, .each = 0.1};
  EXPECT_NEAR(line.knee(0.9), 90, 1e-9);
  EXPECT_NEAR(line.samples_per_s(line.knee(0.9)), 0.9 / line.each, 1e-9);
  EXPECT_EQ(BatchLine{}.knee(), 0);
}

}  // namespace
}  // namespace yoke::cli
