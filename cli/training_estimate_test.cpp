#include "cli/training_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TrainingSize imagenet() {
  return {.samples = 1'281'167, .epochs = 90, .batch = 32, .replicas = 8, .flops_per_sample = 24.5e9};
}

TEST(TrainingEstimate, CountsTheStepsOfEveryEpoch) {
  TrainingSize size = imagenet();
  EXPECT_EQ(estimate_training(size, 0, 0.4, {}).steps, 90 * 5004);
  size.drop_last = false;
  EXPECT_EQ(estimate_training(size, 0, 0.4, {}).steps, 90 * 5005);
  EXPECT_DOUBLE_EQ(estimate_training(size, 0, 0.4, {}).samples, 90.0 * 1'281'167);
  size.accumulate = 4;
  EXPECT_EQ(estimate_training(size, 0, 0.4, {}).steps, 112'613) << "90 * 5005 / 4, rounded up";
}

TEST(TrainingEstimate, OperationsAreSamplesTimesThoseOfOne) {
  const TrainingEstimate all = estimate_training(imagenet(), 0, 0.4, {});
  EXPECT_DOUBLE_EQ(all.flops, 90.0 * 5004 * 256 * 24.5e9);
  EXPECT_DOUBLE_EQ(all.pflop_days, all.flops / 8.64e19);
  EXPECT_EQ(all.seconds_here, 0) << "not measured";
}

TEST(TrainingEstimate, TimesAreThoseOfAllReplicas) {
  const TrainingEstimate all = estimate_training(imagenet(), /*samples_per_s=*/500, 0.4, {"V100", "H100"});
  EXPECT_DOUBLE_EQ(all.seconds_here, all.samples / 4000);
  ASSERT_EQ(all.devices.size(), 2U);
  EXPECT_DOUBLE_EQ(all.devices[0].seconds, all.flops / (8 * 0.4 * 125e12));
  EXPECT_LT(all.devices[1].seconds, all.devices[0].seconds);
  EXPECT_THAT([] { estimate_training(imagenet(), 0, 0.4, {"H1000"}); },
              ThrowsMessage<ConfigError>(HasSubstr("--devices H1000")));
}

TEST(TrainingEstimate, StepsMayBeGivenInsteadOfEpochs) {
  TrainingSize size = imagenet();
  size.steps = 5004;
  const TrainingEstimate one = estimate_training(size, 0, 0.4, {});
  EXPECT_EQ(one.steps, 5004);
  EXPECT_DOUBLE_EQ(one.epochs, 1);
  EXPECT_DOUBLE_EQ(one.samples, 5004.0 * 256);
}

TEST(TrainingEstimate, KnowsNoTimesWithoutOperations) {
  TrainingSize size = imagenet();
  size.flops_per_sample = 0;
  EXPECT_THAT(estimate_training(size, 10, 0.4, {"H100"}).devices, IsEmpty());
  EXPECT_GT(estimate_training(size, 10, 0.4, {"H100"}).seconds_here, 0);
}

TEST(TrainingEstimate, ABatchThatIsNeverFullIsRefused) {
  TrainingSize size = imagenet();
  size.samples = 255;
  EXPECT_THAT([&] { estimate_training(size, 0, 0.4, {}); },
              ThrowsMessage<ConfigError>(HasSubstr("needs 256 samples, but the training set has 255")));
}

}  // namespace
}  // namespace yoke::cli
