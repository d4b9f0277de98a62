// One loss scale for all workers, and updates that are skipped because a gradient has overflowed.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "yoke/kernels/loss_scale.h"
#include "yoke/ps/scheduler.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::HasSubstr;

struct Seen {
  std::map<int64_t, double> value;                                // of the parameters, by version
  std::map<int64_t, std::set<std::pair<float, int32_t>>> scales;  // that workers were told, by version
  double last = 0;
};

// Worker 1 overflows in the steps of these numbers.
Seen train(Class& lesson, const std::set<int64_t>& overflows) {
  Seen seen;
  std::mutex mutex;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (!learner.pull(parameters.data())) continue;
      const ReleaseHead work = learner.work();
      {
        std::lock_guard lock(mutex);
        seen.value[work.version] = parameters[0];
        seen.scales[work.version].insert({work.scale.scale, work.scale.tracker});
      }
      EXPECT_EQ((work.flags & kSkippedFlag) != 0, overflows.contains(work.version - 1)) << work.version;
      const bool overflow = worker == 1 && overflows.contains(work.version);
      std::vector<double> gradient(parameters);
      for (double& one : gradient) one *= overflow ? 0.0 : worker + 1.0;
      learner.push({.data = gradient.data(), .loss = 1, .lr = 0.1, .measure = true, .overflow = overflow});
    }
    if (worker != 0) return;
    learner.fetch_state({parameters.data()});
    learner.report();
    std::lock_guard lock(mutex);
    seen.last = parameters[0];
    seen.scales[lesson.updates].insert({learner.end().scale.scale, learner.end().scale.tracker});
  });
  return seen;
}

TEST(PsLossScale, AnOverflowOnOneWorkerSkipsTheUpdateOnAll) {
  const std::set<int64_t> overflows = {3, 4, 11, 19};
  for (const std::string optimizer : {"sgd", "adamw"})
    for (double clip_norm : {0.0, 0.5})
      for (int replicas : {0, 1}) {
        Class lesson{
            .policy = {plan::Rule::kSync, 3, 0, 0}, .servers = 2, .optimizer = {.optimizer = optimizer}};
        lesson.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
        lesson.clip_norm = clip_norm;
        lesson.replicas = replicas;
        Class shorter = lesson;
        lesson.scale = {1024, 1998};
        shorter.updates = lesson.updates - static_cast<int64_t>(overflows.size());
        const Seen seen = train(lesson, overflows), expected = train(shorter, {});
        EXPECT_EQ(seen.last, expected.last) << "as if the skipped updates had not been";
        for (int64_t skipped : {3, 4, 11}) EXPECT_EQ(seen.value.at(skipped), seen.value.at(skipped + 1));
        EXPECT_EQ(lesson.counts.skipped, 4);
        EXPECT_EQ(lesson.counts.gradients, 60);
        kernels::LossScale scale{1024, 1998};
        for (int64_t version = 0; version <= lesson.updates; ++version) {
          EXPECT_THAT(seen.scales.at(version),
                      ::testing::ElementsAre(
                          std::pair(static_cast<float>(scale.scale), static_cast<int32_t>(scale.tracker))))
              << "on all workers, at version " << version;
          scale = kernels::next_loss_scale(scale, overflows.contains(version));
        }
        EXPECT_GT(seen.scales.at(2).begin()->first, 1024) << "it grows";
      }
}

TEST(PsLossScale, RulesThatVoidMinibatchesSkipUpdatesToo) {
  Class lesson{.policy = {plan::Rule::kKBatchSync, 2, 3, 0}, .updates = 30, .scale = {512, 0}};
  std::atomic<int64_t> overflows = 0;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (!learner.pull(parameters.data())) continue;
      const bool overflow = worker == 1 && learner.work().version % 7 == 3;
      std::vector<double> zeros(parameters.size());
      if (learner.push({.data = zeros.data(), .loss = 1, .lr = 0.1, .overflow = overflow}) && overflow)
        ++overflows;
    }
    if (worker == 0) learner.report();
  });
  EXPECT_LE(lesson.counts.skipped, overflows);
  EXPECT_EQ(lesson.counts.skipped == 0, overflows == 0);
}

TEST(PsLossScale, IsRefusedWhereWorkersHaveTheirOwn) {
  Scheduler alone({.policy = {plan::Rule::kAsync, 2, 0, 0}}, {});
  EXPECT_THAT(
      [&] {
        alone.set_loss_scale({1024, 0});
      },
      ::testing::ThrowsMessage<CommError>(HasSubstr("of their own under async")));
  Scheduler sync({.policy = {plan::Rule::kSync, 2, 0, 0}}, {});
  for (const kernels::LossScale& bad : {kernels::LossScale{0, 0}, {-1, 0}, {INFINITY, 0}, {1, -1}})
    EXPECT_THAT([&] { sync.set_loss_scale(bad); },
                ::testing::ThrowsMessage<CommError>(HasSubstr("out of range")));
}

TEST(PsLossScale, AnOverflowWithoutAScaleIsRefused) {
  Class lesson{.policy = {plan::Rule::kSync, 1, 0, 0}, .updates = 1};
  lesson.run([&](Learner& learner, int, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    ASSERT_TRUE(learner.wait() && learner.pull(parameters.data()));
    EXPECT_THAT([&] { learner.push({.data = parameters.data(), .lr = 0.1, .overflow = true}); },
                ::testing::ThrowsMessage<CommError>(HasSubstr("its losses are not scaled")));
    learner.push({.data = parameters.data(), .lr = 0.1});
  });
}

}  // namespace
}  // namespace yoke::ps
