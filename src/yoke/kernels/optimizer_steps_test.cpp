#include "yoke/kernels/optimizer_steps.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

namespace yoke::kernels {
namespace {

TEST(OptimizerSteps, SgdGoesAgainstTheMeanGradient) {
  std::vector<double> w = {1, 2, 3}, sum = {4, 8, 12}, out(3);
  sgd<double>({.lr = 0.1}, 0.25, sum.data(), w.data(), out.data(), nullptr, 3);
  EXPECT_THAT(out, ::testing::ElementsAre(1 - 0.1, 2 - 0.2, 3 - 0.1 * 3));
  EXPECT_EQ(w[0], 1);
}

TEST(OptimizerSteps, MomentumOnZerosIsThePlainStepFirst) {
  std::vector<float> w = {1}, g = {2}, velocity = {0};
  SgdStep step{.lr = 0.5, .momentum = 0.9};
  sgd<float>(step, 1, g.data(), w.data(), w.data(), velocity.data(), 1);
  EXPECT_FLOAT_EQ(w[0], 0);
  sgd<float>(step, 1, g.data(), w.data(), w.data(), velocity.data(), 1);
  EXPECT_FLOAT_EQ(w[0], -0.5f * (0.9f * 2 + 2));
}

TEST(OptimizerSteps, AdagradWithConstantGradientsSumsInverseRoots) {
  double w = 0, g = 1, sum = 0;
  for (int i = 0; i < 4; ++i) adagrad<double>({.lr = 1, .eps = 0}, 1, &g, &w, &w, &sum, 1);
  EXPECT_NEAR(w, -2.784457, 1e-6);
}

TEST(OptimizerSteps, AdamwsFirstStepIsItsLearningRate) {
  double w = 1, g = 5, mean = 0, square = 0;
  adamw<double>({.lr = 0.01, .eps = 0, .weight_decay = 0.1}, 1, &g, &w, &w, &mean, &square, 1);
  EXPECT_NEAR(w, 1 * (1 - 0.001) - 0.01, 1e-12);
}

TEST(OptimizerSteps, FindsOneBadNumberAnywhere) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity()}) {
    for (size_t at : {size_t{0}, size_t{17}, size_t{99}}) {
      std::vector<double> wide(100, 1e300);
      std::vector<float> narrow(100, 3e38f);
      EXPECT_TRUE(all_finite(wide.data(), 100) && all_finite(narrow.data(), 100));
      wide[at] = bad;
      narrow[at] = static_cast<float>(bad);
      EXPECT_FALSE(all_finite(wide.data(), 100) || all_finite(narrow.data(), 100));
    }
  }
}

TEST(OptimizerSteps, MeasuresDistances) {
  std::vector<float> a(21, 3), b(21, 1);
  EXPECT_DOUBLE_EQ(squared_distance(a.data(), b.data(), 21), 84);
  add_scaled(a.data(), b.data(), -2, 21);
  EXPECT_DOUBLE_EQ(squared_distance(a.data(), b.data(), 21), 0);
}

TEST(OptimizerSteps, FtrlWithoutALearningRateChangesNothing) {
  double w[] = {0.5, -2}, to[] = {9, 9}, linear[] = {1, 0}, sum[] = {4, 0};
  const double g[] = {1, 1};
  ftrl<double>({.lr = 0}, 1, g, w, to, linear, sum, 2);
  EXPECT_EQ(to[0], 0.5);
  EXPECT_EQ(to[1], -2);
  EXPECT_EQ(linear[0], 1);
  EXPECT_EQ(sum[0], 4);
}

}  // namespace
}  // namespace yoke::kernels
