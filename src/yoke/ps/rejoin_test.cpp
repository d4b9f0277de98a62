// Workers that are lost in the middle of something, are started again and go on.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/ps/client.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kLost = 2;       // the worker that is
constexpr int64_t kHold = 20;  // the others wait at this version until it is back for good

// Asks whether its gradient counts, and is gone before it sends any of it. An update has the learning rate of
// whoever was last to ask.
void promise(LocalGroup& group, const Learner& learner, int workers, double lr) {
  comm::Message message;
  message.kind = kFinished;
  message.set_head(
      FinishedHead{.version = learner.work().version, .minibatch = learner.work().minibatch, .lr = lr});
  group.messenger(kLost).ask(workers, message, {}, Deadline::after(20)).get();
}

// Worker kLost is lost `deaths` times, each after two gradients and a promise that it does not keep.
struct Rejoining {
  Class lesson;
  int deaths = 1;
  bool promises = true;
  double lr = 0.1;  // of `step`
  std::function<void(Learner&, std::vector<double>&)> step = [](Learner& learner, std::vector<double>& w) {
    ps::step(learner, w, 0.5);
  };
  std::vector<double> values{};  // at the end

  void run() {
    std::atomic<bool> back{false};
    lesson.run([&](Learner& first, int worker, LocalGroup& group) {
      std::vector<double> parameters(static_cast<size_t>(first.elements()));
      if (worker != kLost) return work(first, parameters, back, worker == 0);
      lose(first, group, parameters);
      for (int life = 1;; ++life) {
        group.open_again(kLost);
        Learner again(group.messenger(kLost), lesson.learner_options());
        again.join();
        if (life < deaths) {
          lose(again, group, parameters);
          continue;
        }
        back = true;
        return work(again, parameters, back, false);
      }
    });
  }

  void lose(Learner& learner, LocalGroup& group, std::vector<double>& parameters) {
    for (int i = 0; i < 2 && learner.wait(); ++i) {
      if (learner.pull(parameters.data())) step(learner, parameters);
    }
    if (promises && learner.wait()) promise(group, learner, lesson.policy.workers, lr);
    learner.abandon();
    group.close(kLost);
  }

  void work(Learner& learner, std::vector<double>& parameters, const std::atomic<bool>& back, bool reports) {
    Deadline patience = Deadline::after(20);
    while (learner.wait()) {
      while (learner.work().version >= kHold && !back && !patience.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (learner.pull(parameters.data())) step(learner, parameters);
    }
    if (!reports) return;
    learner.fetch_state({parameters.data()});
    learner.report();
    values = parameters;
  }
};

TEST(PsRejoin, EveryRuleGoesOnWithAWorkerThatIsBack) {
  for (const std::string& name : plan::rule_names()) {
    for (const char* backend : {"shm", "tcp"}) {
      SCOPED_TRACE(name + " over " + backend);
      Rejoining run{.lesson = {.policy = {plan::parse_rule(name), 3, 2, 1},
                               .updates = 100,
                               .clip_norm = backend == std::string("tcp") ? 1.0 : 0.0,
                               .backend = backend}};
      run.run();
      EXPECT_EQ(run.lesson.version, 100);
      EXPECT_THAT(run.lesson.news, Contains(HasSubstr("worker 2 is lost")));
      EXPECT_THAT(run.lesson.news, Contains(HasSubstr("worker 2 rejoined")));
      EXPECT_FALSE(run.lesson.counts.workers[kLost].lost);
      EXPECT_EQ(run.lesson.counts.workers[kLost].rejoined, 1);
    }
  }
}

// A gradient that was promised and did not come does not make the step smaller.
TEST(PsRejoin, SyncStaysTheMeanOfThoseWhoAreThere) {
  for (auto [rule, clip_norm] : {std::pair{plan::Rule::kSync, 0.0},
                                 {plan::Rule::kBoundedDelay, 0.0},
                                 {plan::Rule::kBoundedDelay, 3.0}}) {
    Rejoining run{.lesson = {.policy = {rule, 3, 0, 0},
                             .updates = rule == plan::Rule::kSync ? 60 : 180,
                             .clip_norm = clip_norm},
                  .promises = rule == plan::Rule::kSync};
    run.run();
    // A round of bounded_delay is 3 updates, or 2 while one is away: its end is not always a round's.
    if (rule == plan::Rule::kSync) {
      EXPECT_THAT(run.values, Each(::testing::DoubleNear(std::pow(0.95, 60), 1e-12)));
    } else {
      EXPECT_THAT(run.values, Each(run.values[0]));
    }
  }
}

TEST(PsRejoin, SyncThatIsClippedStaysTheMeanOfThoseWhoAreThere) {
  Rejoining run{.lesson = {.policy = {plan::Rule::kSync, 3, 0, 0}, .updates = 60, .clip_norm = 3}};
  run.run();
  double w = 1;
  for (int i = 0; i < 60; ++i) w -= 0.1 * 0.5 * w * std::min(1.0, 3 / (0.5 * w * std::sqrt(5103.0) + 1e-6));
  EXPECT_THAT(run.values, Each(::testing::DoubleNear(w, 1e-12)));
}

TEST(PsRejoin, EveryGradientCountsExactlyOnceThroughSeveralLives) {
  Rejoining run{.lesson = {.policy = {plan::Rule::kAsync, 3, 0, 0}, .updates = 100}, .deaths = 3, .lr = 1};
  run.step = [](Learner& learner, std::vector<double>& w) {
    std::vector<double> ones(w.size(), 1);
    learner.push({ones.data(), 0, 1, 0});
  };
  run.run();
  EXPECT_EQ(run.lesson.version, 100);
  EXPECT_EQ(run.lesson.counts.workers[kLost].rejoined, 3);
  EXPECT_THAT(run.values, Each(1.0 - (100 - 3))) << "all but those that were promised only";
}

// Promises of several lives wait for one update.
TEST(PsRejoin, AnUpdateMayHoldGradientsOfSeveralLives) {
  Rejoining run{.lesson = {.policy = {plan::Rule::kKBatchAsync, 3, 64, 0}, .updates = 30}, .deaths = 3};
  run.run();
  EXPECT_EQ(run.lesson.version, 30);
  EXPECT_EQ(run.lesson.counts.gradients, 30 * 64);
}

TEST(PsRejoin, AWorkerThatIsLostBeforeItJoinsHoldsNobodyUp) {
  std::vector<int> released;
  SchedulerWire wire;
  wire.release = [&](int worker, const ReleaseHead&) { released.push_back(worker); };
  wire.update = [](const UpdateHead&, const std::vector<Contributor>&) {};
  int stopped = 0;
  wire.stop = [&](int, const StopHead&) { ++stopped; };
  SchedulerOptions options;
  options.policy = {plan::Rule::kSync, 3, 0, 0};
  Scheduler scheduler(options, wire);
  scheduler.joined(0, 7);
  scheduler.joined(1, 7);
  EXPECT_THAT(released, ::testing::IsEmpty());
  scheduler.left(2, /*lost=*/true, "it fell");
  EXPECT_THAT(released, ::testing::ElementsAre(0, 1));
  scheduler.joined(2, 7, /*life=*/1);
  EXPECT_THAT(released, ::testing::ElementsAre(0, 1, 2));
  scheduler.stop(15);
  EXPECT_EQ(stopped, 3);
  scheduler.left(2, /*lost=*/true, "it fell again");
  scheduler.joined(2, 7, /*life=*/2);
  EXPECT_EQ(stopped, 4) << "who comes back to the end is told so";
}

TEST(PsRejoin, AClientsNumbersBeginAnew) {
  std::unique_ptr<Server> server;
  LocalGroup group(3);
  ServerOptions options;
  options.workers = 2;
  options.make_updater = make_adder();
  server = std::make_unique<Server>(group.messenger(2), std::move(options));
  const ClientOptions values{.workers = 2, .keys = 10, .type = DataType::kFloat64, .timeout = 20};
  std::vector<double> ones(10, 1), seen(10);
  Client other(group.messenger(0), values);
  for (int life = 0; life < 3; ++life) {
    if (life > 0) group.open_again(1);
    {
      Client client(group.messenger(1), values);
      for (int i = 0; i < 5; ++i) client.wait(client.push(0, std::span(ones)));
      client.wait(client.pull(0, std::span(seen)));
    }
    EXPECT_THAT(seen, Each(5.0 * (life + 1)));
    group.close(1);
  }
  other.goodbye();
  server->run();
}

}  // namespace
}  // namespace yoke::ps
