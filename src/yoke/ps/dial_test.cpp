// The delay of bounded_delay and ssp changes while workers run and wait.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/ps/client.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kInf = plan::PolicyOptions::kUnbounded;

// A scheduler whose servers are a list.
struct Desk {
  std::vector<int> released;
  std::vector<UpdateHead> told;
  std::vector<size_t> gradients;
  ReleaseHead work[3];
  Scheduler scheduler;

  explicit Desk(int64_t delay, std::vector<plan::DelayStep> schedule = {})
      : scheduler(options_of(delay, std::move(schedule)), wire()) {
    for (int worker : {0, 1, 2}) scheduler.joined(worker, 0);
    released.clear();
  }
  static SchedulerOptions options_of(int64_t delay, std::vector<plan::DelayStep> schedule) {
    SchedulerOptions options;
    options.policy = {plan::Rule::kBoundedDelay, 3, 0, delay};
    options.delay_schedule = std::move(schedule);
    options.clip_norm = 7;
    return options;
  }
  SchedulerWire wire() {
    SchedulerWire wire;
    wire.release = [this](int worker, const ReleaseHead& head) {
      released.push_back(worker);
      work[worker] = head;
    };
    wire.update = [this](const UpdateHead& head, const std::vector<Contributor>& from) {
      told.push_back(head);
      gradients.push_back(from.size());
    };
    wire.stop = [](int, const StopHead&) {};
    return wire;
  }
  GrantReply push(int worker) {
    released.clear();
    return scheduler.finished(worker, {.version = work[worker].version, .minibatch = work[worker].minibatch});
  }
};

TEST(PsDial, RaisedInTheMiddleOfARoundLetsThoseGoWhoWait) {
  Desk desk(0);
  EXPECT_EQ(desk.push(0).scale, 1.0 / 3);
  EXPECT_THAT(desk.released, IsEmpty());
  EXPECT_THAT(desk.told, IsEmpty()) << "a round is told at its end";
  desk.scheduler.set_max_delay(2);
  EXPECT_THAT(desk.gradients, ElementsAre(1)) << "what has come of it is applied";
  EXPECT_THAT(desk.released, ElementsAre(0));
  EXPECT_EQ(desk.work[0].version, 1);
  desk.push(1);
  EXPECT_THAT(desk.gradients, ElementsAre(1, 1));
  EXPECT_EQ(desk.told.back().version, 2);
}

TEST(PsDial, LoweredWhileSomeAreAheadHoldsThemUntilTheOthersCome) {
  Desk desk(kInf);
  for (int i = 0; i < 3; ++i) desk.push(0);
  desk.scheduler.set_max_delay(0);
  desk.push(0);
  EXPECT_THAT(desk.released, IsEmpty()) << "four ahead";
  for (int round = 0; round < 4; ++round) {
    desk.push(1);
    desk.push(2);
  }
  EXPECT_THAT(desk.released, Contains(0)) << "all have pushed four";
  EXPECT_EQ(desk.told.back().version, desk.work[0].version) << "nobody is sent to a version that nobody told";
  size_t rounds = desk.told.size();
  for (int worker : {0, 1, 2}) desk.push(worker);
  EXPECT_EQ(desk.told.size(), rounds + 1) << "rounds again";
  EXPECT_EQ(desk.gradients.back(), 3u);
}

// Rounds have one gradient, which the servers clip; otherwise each worker's is clipped by itself.
TEST(PsDial, RoundsAreClippedAsAWhole) {
  Desk desk(0);
  EXPECT_EQ(desk.push(0).combined, 1);
  desk.scheduler.set_max_delay(2);
  EXPECT_EQ(desk.told.back().clip_norm, 7) << "what had come of the round";
  EXPECT_EQ(desk.push(1).combined, 0) << "the rest of it";
  EXPECT_EQ(desk.told.back().clip_norm, 0);
  desk.scheduler.set_max_delay(0);
  EXPECT_EQ(desk.push(2).combined, 1);
}

TEST(PsDial, FollowsASchedule) {
  Desk desk(9, {{0, 0}, {3, 1}, {4, kInf}});
  desk.push(0);
  EXPECT_THAT(desk.released, IsEmpty()) << "the schedule holds, not the option";
  desk.push(1);
  desk.push(2);
  EXPECT_THAT(desk.released, ::testing::UnorderedElementsAre(0, 1, 2));
  desk.push(0);
  EXPECT_THAT(desk.released, ElementsAre(0)) << "one ahead";
  for (int i = 0; i < 5; ++i) desk.push(0);
  EXPECT_THAT(desk.released, ElementsAre(0)) << "any number ahead";
}

TEST(PsDial, RulesWithoutADelayRefuseIt) {
  Class lesson{.policy = {plan::Rule::kSync, 1, 0, 0}, .servers = 1, .updates = 3};
  lesson.run([&](Learner& learner, int, LocalGroup&) {
    try {
      learner.set_max_delay(2);
      ADD_FAILURE() << "sync has no dial";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("sync has no max_delay"));
    }
  });
}

// Real servers; one worker turns the dial up and down all the time while others wait for each other.
TEST(PsDial, TurnedAllTheTimeNobodyHangs) {
  for (auto [rule, clip_norm] : {std::pair{plan::Rule::kBoundedDelay, 0.0},
                                 {plan::Rule::kBoundedDelay, 0.5},
                                 {plan::Rule::kSsp, 0.5}}) {
    Class lesson{.policy = {rule, 3, 0, 0}, .updates = 400, .clip_norm = clip_norm};
    int64_t dial[] = {3, 0, kInf, 1, 0, 5};
    std::vector<double> values;
    lesson.run([&](Learner& learner, int worker, LocalGroup&) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      for (size_t i = 0; learner.wait(); ++i) {
        if (worker == 0) learner.set_max_delay(dial[i % std::size(dial)]);
        if (learner.pull(parameters.data())) step(learner, parameters, 0.1);
      }
      if (worker != 0) return;
      learner.fetch_state({parameters.data()});
      learner.report();
      values = parameters;
    });
    EXPECT_EQ(lesson.version, 400);
    EXPECT_EQ(lesson.counts.gradients, 400);
    EXPECT_TRUE(std::isfinite(values[0]));
  }
}

// Ones pushed by async gradients are all counted, whatever the dial does meanwhile.
TEST(PsDial, EveryGradientCountsExactlyOnce) {
  Class lesson{.policy = {plan::Rule::kSsp, 3, 0, 0}, .updates = 90};
  std::vector<double> values;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements())), ones(parameters.size(), 1);
    for (int64_t i = 0; learner.wait(); ++i) {
      if (worker == 1) learner.set_max_delay(i % 3);
      if (learner.pull(parameters.data())) learner.push({ones.data(), 0, 1, 0});
    }
    if (worker != 0) return;
    learner.fetch_state({parameters.data()});
    values = parameters;
  });
  EXPECT_THAT(values, Each(1.0 - 90));
}

TEST(PsDial, AClientTurnsIt) {
  Class lesson{.policy = {plan::Rule::kSsp, 2, 0, 0}, .updates = 40, .tensors = {512}};
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(512);
    std::unique_ptr<Client> client;
    if (worker == 1 && learner.wait()) {
      // The same values as the learner's, over the same messenger.
      client = std::make_unique<Client>(group.messenger(1), ClientOptions{.workers = 2,
                                                                          .servers = lesson.servers,
                                                                          .keys = 512,
                                                                          .type = DataType::kFloat64,
                                                                          .range_bytes = lesson.range_bytes,
                                                                          .timeout = 20});
      client->set_max_delay(kInf);
      if (learner.pull(parameters.data())) step(learner, parameters, 0.1);
    }
    while (learner.wait()) {
      if (learner.pull(parameters.data())) step(learner, parameters, 0.1);
    }
    if (worker == 0) learner.report();
  });
  EXPECT_EQ(lesson.version, 40);
  EXPECT_THAT(lesson.news, Contains(HasSubstr("the delay is not bounded")));
}

}  // namespace
}  // namespace yoke::ps
