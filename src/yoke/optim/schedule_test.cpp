#include "yoke/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "yoke/base/error.h"

namespace yoke::optim {
namespace {

TEST(Schedule, FollowsTheLinearScalingRuleOfGoyal) {
  ScheduleOptions options{
      .schedule = "step", .warmup_epochs = 5, .decay_epochs = {30, 60, 80}, .scale_lr = true};
  ScheduleContext context{.total_steps = 90 * 100, .steps_per_epoch = 100, .replicas = 32};
  auto at_epoch = [&](double epoch) {
    return learning_rate(options, 0.1, context, static_cast<int64_t>(epoch * 100));
  };
  EXPECT_DOUBLE_EQ(at_epoch(0), 0.1);
  EXPECT_DOUBLE_EQ(at_epoch(2.5), (0.1 + 3.2) / 2);
  EXPECT_DOUBLE_EQ(at_epoch(5), 3.2);
  EXPECT_DOUBLE_EQ(at_epoch(29.99), 3.2);
  EXPECT_DOUBLE_EQ(at_epoch(30), 0.32);
  EXPECT_DOUBLE_EQ(at_epoch(60), 0.032);
  EXPECT_DOUBLE_EQ(at_epoch(80), 0.0032);
}

TEST(Schedule, DecaysAtItsEpochWhereAnEpochIsNoWholeNumberOfSteps) {
  ScheduleOptions options{.schedule = "step", .warmup_epochs = 2, .decay_epochs = {30}};
  ScheduleContext context{.total_steps = 88, .steps_per_epoch = 2.5};  // 35 epochs
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 3), 0.8);      // of five steps of warm-up
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 74), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 75), 0.1);
  context.steps_per_epoch = 937.0 / 3;
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 9369), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 9370), 0.1);
}

TEST(Schedule, CountsEpochsOnWhereARunWasResumedWithOtherBatches) {
  ScheduleOptions options{.schedule = "step", .decay_epochs = {3}};
  ScheduleContext context{.total_steps = 100, .steps_per_epoch = 5, .first_step = 20, .first_epoch = 2};
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 24), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 25), 0.1);
}

TEST(Schedule, WarmUpRisesFromOneShareToTheFullRate) {
  ScheduleOptions options{.warmup_steps = 4};
  ScheduleContext context{.total_steps = 10, .steps_per_epoch = 5};
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 9), 1.0);
  options.warmup_epochs = 1;  // five steps: the longer one counts
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 0), 0.2);
}

TEST(Schedule, CosineRestartsInPeriodsThatGrow) {
  ScheduleContext context{.total_steps = 1000, .steps_per_epoch = 10};
  ScheduleOptions options{.schedule = "cosine_restarts",
                          .warmup_epochs = 2,
                          .min_lr = 0.2,
                          .restart_epochs = 4,
                          .restart_factor = 2};
  auto at_epoch = [&](double epoch) {
    return learning_rate(options, 1.0, context, static_cast<int64_t>(std::llround(epoch * 10)));
  };
  EXPECT_DOUBLE_EQ(at_epoch(0), 0.05) << "warm-up";
  for (double start : {2.0, 6.0, 14.0, 30.0}) EXPECT_NEAR(at_epoch(start), 1.0, 1e-7) << start;
  EXPECT_NEAR(at_epoch(4), 0.6, 1e-6) << "half of 4 epochs";
  EXPECT_NEAR(at_epoch(10), 0.6, 1e-6) << "half of 8 epochs";
  EXPECT_NEAR(at_epoch(22), 0.6, 1e-6) << "half of 16 epochs";
  EXPECT_LT(at_epoch(13.9), 0.201);
  options.restart_factor = 1;
  for (double start : {2.0, 6.0, 10.0, 14.0, 18.0}) EXPECT_NEAR(at_epoch(start), 1.0, 1e-7) << start;
  EXPECT_NEAR(at_epoch(16), 0.6, 1e-6);
}

TEST(Schedule, APeriodOfNothingIsRefused) {
  ScheduleOptions options{.schedule = "cosine_restarts", .restart_epochs = 0};
  ScheduleContext context{.total_steps = 10, .steps_per_epoch = 5};
  EXPECT_THROW(learning_rate(options, 1.0, context, 0), ConfigError);
}

TEST(Schedule, CosineAndLinearEndAtTheirLeast) {
  ScheduleContext context{.total_steps = 120, .steps_per_epoch = 10};
  ScheduleOptions options{.schedule = "cosine", .warmup_steps = 20, .min_lr = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 20), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 70), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 120), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 500), 0.2);
  options.schedule = "linear";
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 45), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 120), 0.2);
}

TEST(Schedule, ARunShorterThanItsWarmUpOnlyRises) {
  ScheduleOptions options{.schedule = "cosine", .warmup_steps = 100};
  ScheduleContext context{.total_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, context, 9), 0.1);
}

TEST(Schedule, RefusesAnUnknownName) {
  EXPECT_THROW(learning_rate({.schedule = "triangle"}, 1.0, {}, 0), ConfigError);
}

}  // namespace
}  // namespace yoke::optim
