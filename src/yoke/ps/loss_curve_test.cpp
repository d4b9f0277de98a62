#include "yoke/ps/loss_curve.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "yoke/ps/scheduler.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

TEST(PsLossCurve, HoldsEveryUpdateWhileThereAreFew) {
  LossCurve curve(4);
  for (int64_t i = 1; i <= 3; ++i)
    curve.add({i, 0.5 * static_cast<double>(i), 10.0 - static_cast<double>(i), 2});
  auto points = curve.points();
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[2].version, 3);
  EXPECT_EQ(points[2].seconds, 1.5);
  EXPECT_EQ(points[2].loss, 7);
  EXPECT_EQ(points[2].gradients, 2);
}

TEST(PsLossCurve, StaysBoundedAndKeepsTheMean) {
  for (int64_t updates : {1, 99, 100, 101, 5'000, 123'457}) {
    LossCurve curve(100);
    double sum = 0;
    int64_t gradients = 0;
    for (int64_t i = 1; i <= updates; ++i) {
      double loss = 1.0 / static_cast<double>(i);
      int64_t count = 1 + i % 3;
      curve.add({i, static_cast<double>(i), loss, count});
      sum += loss * static_cast<double>(count);
      gradients += count;
    }
    auto points = curve.points();
    EXPECT_LE(points.size(), 100u);
    EXPECT_GE(points.size(), static_cast<size_t>(std::min<int64_t>(updates, 50)));
    EXPECT_EQ(points.back().version, updates) << "it ends where the run does";
    double told = 0;
    int64_t counted = 0, before = 0;
    for (const LossPoint& point : points) {
      EXPECT_GT(point.version, before);
      before = point.version;
      told += point.loss * static_cast<double>(point.gradients);
      counted += point.gradients;
    }
    EXPECT_EQ(counted, gradients);
    EXPECT_NEAR(told, sum, 1e-9 * sum);
  }
}

TEST(PsLossCurve, ALossThatIsNotFiniteIsNull) {
  EXPECT_EQ(to_json(std::vector<LossPoint>{{1, 0.5, std::numeric_limits<double>::quiet_NaN(), 1}}).dump(),
            R"({"gradients":[1],"loss":[null],"seconds":[0.5],"version":[1]})");
}

// Everybody's losses, and everybody hears of them.
TEST(PsLossCurve, TheSchedulerSeesEveryWorkersLoss) {
  for (auto rule : {plan::Rule::kSync, plan::Rule::kAsync, plan::Rule::kKBatchAsync}) {
    Class lesson{.policy = {rule, 3, 2, 0}, .updates = 40};
    lesson.run([&](Learner& learner, int worker, LocalGroup&) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      while (learner.wait()) {
        const ReleaseHead& work = learner.work();
        EXPECT_EQ(work.losses, work.gradients);
        EXPECT_GE(work.loss_sum, static_cast<double>(work.losses));
        EXPECT_LE(work.loss_sum, 3.0 * static_cast<double>(work.losses));
        if (learner.pull(parameters.data()))
          learner.push({.data = parameters.data(), .loss = 1.0 + worker, .lr = 0.01});
      }
      StopHead end = learner.end();
      EXPECT_EQ(end.losses, 40 * plan::effective_k(lesson.policy));
      if (rule == plan::Rule::kSync) {
        EXPECT_EQ(end.loss_sum, 2.0 * static_cast<double>(end.losses));
      }
      if (worker == 0) learner.report();
    });
    ASSERT_EQ(lesson.counts.losses.size(), 40u);
    for (const LossPoint& point : lesson.counts.losses) {
      EXPECT_EQ(point.gradients, plan::effective_k(lesson.policy));
      if (rule == plan::Rule::kSync) {
        EXPECT_EQ(point.loss, 2);
      }
      EXPECT_THAT(point.loss, ::testing::AllOf(::testing::Ge(1), ::testing::Le(3)));
    }
    EXPECT_EQ(lesson.counts.losses.back().version, 40);
  }
}

TEST(PsLossCurve, ALossThatIsNotFiniteDoesNotSpoilTheOthers) {
  Class lesson{.policy = {plan::Rule::kSync, 2, 0, 0}, .updates = 3};
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      double loss = worker == 0 ? 5 : std::numeric_limits<double>::infinity();
      if (learner.pull(parameters.data()))
        learner.push({.data = parameters.data(), .loss = loss, .lr = 0.01});
    }
    EXPECT_EQ(learner.end().losses, 3);
    EXPECT_EQ(learner.end().loss_sum, 15);
  });
}

}  // namespace
}  // namespace yoke::ps
