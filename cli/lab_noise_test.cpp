#include "cli/lab_noise.h"

#include <gtest/gtest.h>

namespace yoke::cli {
namespace {

TEST(FitNoise, FindsTheCriticalBatchSizeOfExactSteps) {
  std::vector<StepsToLoss> runs;
  for (double batch : {2.0, 8.0, 32.0, 128.0}) runs.push_back({batch, 50 * (1 + 12 / batch)});
  const auto fit = fit_noise(runs);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->critical_batch, 12, 0.12);
  EXPECT_NEAR(fit->least_steps, 50, 0.5);
}

TEST(FitNoise, RefusesStepsThatDoNotFallOrFallAsFastAsTheBatchGrows) {
  EXPECT_FALSE(fit_noise({}));
  EXPECT_FALSE(fit_noise({{8, 100}}));
  EXPECT_FALSE(fit_noise({{8, 100}, {8, 90}}));
  EXPECT_FALSE(fit_noise({{8, 100}, {32, 100}}));
  EXPECT_FALSE(fit_noise({{8, 100}, {32, 120}}));
  EXPECT_FALSE(fit_noise({{8, 100}, {32, 20}}));
}

}  // namespace
}  // namespace yoke::cli
