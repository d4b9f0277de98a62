// Servers, scheduler and workers together, as threads over shared memory.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <future>
#include <mutex>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<double> final_values(Class& lesson, const std::function<double(int worker)>& factor) {
  std::vector<double> last;
  std::mutex mutex;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (learner.pull(parameters.data())) step(learner, parameters, factor(worker));
    }
    if (worker == 0) {
      Learner::State state = learner.fetch_state({parameters.data()});
      EXPECT_EQ(state.version, lesson.updates);
      EXPECT_EQ(learner.report(), "counted");
      std::lock_guard lock(mutex);
      last = parameters;
    }
  });
  return last;
}

TEST(PsTraining, SyncIsTheMeanOfAllWorkersOnAnyNumberOfServers) {
  for (int servers : {1, 2, 3}) {
    Class lesson{.policy = {plan::Rule::kSync, 4, 0, 0}, .servers = servers};
    auto values = final_values(lesson, [](int worker) { return worker + 1.0; });
    double expected = std::pow(1 - 0.1 * 2.5, 20);
    EXPECT_THAT(values, Each(::testing::DoubleNear(expected, 1e-12)));
    EXPECT_EQ(lesson.counts.gradients, 80);
    EXPECT_EQ(lesson.counts.fresh(), 1);
  }
}

TEST(PsTraining, ServersTellTheirTimesAndBytes) {
  Class lesson{.policy = {plan::Rule::kSync, 3, 0, 0}, .servers = 2};
  std::vector<std::optional<ServerTime>> servers;
  const double begin = now_seconds();
  double elapsed = 0;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait())
      if (learner.pull(parameters.data())) step(learner, parameters, 1);
    if (worker != 0) return;
    learner.fetch_state({parameters.data()});  // all gradients have arrived
    servers = learner.server_times();
    elapsed = now_seconds() - begin;
  });
  ASSERT_EQ(servers.size(), 2u);
  int64_t pushed = 0, pulled = 0;
  for (const auto& server : servers) {
    ASSERT_TRUE(server);
    EXPECT_GT(server->apply, 0);
    EXPECT_GT(server->wait, 0);
    EXPECT_LE(server->receive + server->apply + server->wait, elapsed);
    pushed += server->pushed_bytes;
    pulled += server->pulled_bytes;
  }
  constexpr int64_t kGradientBytes = 5103 * 8;
  EXPECT_EQ(pushed, 3 * 20 * kGradientBytes);
  EXPECT_GE(pulled, 20 * kGradientBytes);
}

TEST(PsTraining, OneAsynchronousWorkerIsPlainSgdBitForBit) {
  for (auto rule : {plan::Rule::kAsync, plan::Rule::kBoundedDelay, plan::Rule::kSsp}) {
    Class lesson{.policy = {rule, 1, 0, 0}, .updates = 100};
    auto values = final_values(lesson, [](int) { return 0.37; });
    double w = 1;
    for (int i = 0; i < 100; ++i) {
      double gradient = w * 0.37;
      kernels::sgd<double>({.lr = 0.1}, 1, &gradient, &w, &w, nullptr, 1);
    }
    EXPECT_THAT(values, Each(w));
  }
}

TEST(PsTraining, BoundedDelayOfZeroIsSync) {
  Class lesson{.policy = {plan::Rule::kBoundedDelay, 3, 0, 0}, .updates = 60};
  auto values = final_values(lesson, [](int worker) { return worker + 1.0; });
  EXPECT_THAT(values, Each(::testing::DoubleNear(std::pow(1 - 0.1 * 2, 20), 1e-12)));
}

TEST(PsTraining, EveryRuleReachesItsEnd) {
  for (const std::string& name : plan::rule_names()) {
    Class lesson{.policy = {plan::parse_rule(name), 4, 2, 1}, .updates = 100};
    final_values(lesson, [](int) { return 0.5; });
    EXPECT_EQ(lesson.version, 100) << name;
    EXPECT_EQ(lesson.counts.gradients, 100 * plan::effective_k(lesson.policy)) << name;
  }
}

TEST(PsTraining, PullsAreNeverTorn) {
  // All elements of a range have the same history: whoever reads two different ones has seen half an update.
  for (auto rule : {plan::Rule::kSync, plan::Rule::kKSync, plan::Rule::kAsync, plan::Rule::kKBatchAsync}) {
    Class lesson{.policy = {rule, 3, 2, 0}, .updates = 60, .tensors = {200'000}, .range_bytes = 64 << 10};
    bool one_version = rule == plan::Rule::kSync || rule == plan::Rule::kKSync;
    lesson.run([&](Learner& learner, int, LocalGroup&) {
      std::vector<double> parameters(200'000);
      while (learner.wait()) {
        if (!learner.pull(parameters.data())) continue;
        for (const Range& range : learner.sharding().ranges()) {
          double first = parameters[one_version ? 0 : static_cast<size_t>(range.begin)];
          for (int64_t i = range.begin; i < range.end(); ++i)
            ASSERT_EQ(parameters[static_cast<size_t>(i)], first) << "element " << i;
        }
        step(learner, parameters, 0.5);
      }
    });
  }
}

TEST(PsTraining, MemoryDoesNotGrowWithWorkers) {
  Class lesson{.policy = {plan::Rule::kSync, 16, 0, 0}, .servers = 1, .updates = 3, .tensors = {100'000}};
  lesson.optimizer.momentum = 0.9;
  final_values(lesson, [](int) { return 0.5; });
  // Parameters, one accumulator, the momentum.
  EXPECT_EQ(lesson.numbers[0].parameter_bytes, 800'000u);
  EXPECT_EQ(lesson.numbers[0].bytes_held, 3 * 800'000u);
}

TEST(PsTraining, AVoidedMinibatchStopsAndIsNotCounted) {
  Class lesson{.policy = {plan::Rule::kKSync, 2, 1, 0}, .updates = 10};
  int voided = 0;
  std::promise<void> pulled;  // by worker 1, before worker 0 makes the first update
  std::shared_future<void> began = pulled.get_future().share();
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    for (bool first = true; learner.wait(); first = false) {
      if (!learner.pull(parameters.data())) continue;
      if (first && worker == 1) pulled.set_value();
      if (first && worker == 0) began.wait_for(std::chrono::seconds(60));
      if (worker == 1 && !learner.sleep(20)) {
        ++voided;  // long before its time was over
        continue;
      }
      step(learner, parameters, 0.5);
    }
    if (worker == 0) learner.report();
  });
  EXPECT_GE(voided, 1);
  EXPECT_EQ(lesson.counts.gradients, 10);
  EXPECT_EQ(lesson.counts.fresh(), 1);
}

TEST(PsTraining, GoesOnWithoutALostWorker) {
  for (auto rule : {plan::Rule::kSync, plan::Rule::kAsync, plan::Rule::kKAsync}) {
    Class lesson{.policy = {rule, 3, 2, 0}, .updates = 30};
    lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      for (int i = 0; learner.wait(); ++i) {
        if (worker == 2 && i == 3) {
          learner.abandon();
          return group.close(worker);
        }
        // Longer than it takes to notice that somebody has gone.
        if (learner.pull(parameters.data()) && learner.sleep(0.005)) step(learner, parameters, 0.5);
      }
      if (worker == 0) learner.report();
    });
    EXPECT_EQ(lesson.version, 30);
    EXPECT_THAT(lesson.news, ::testing::Contains(HasSubstr("worker 2 is lost")));
    EXPECT_TRUE(lesson.counts.workers[2].lost);
  }
}

TEST(PsTraining, GradientsThatWereNeverAskedForAreRefused) {
  Class lesson{.policy = {plan::Rule::kAsync, 1, 0, 0}, .servers = 1, .updates = 5};
  lesson.run([&](Learner& learner, int, LocalGroup& group) {
    learner.wait();
    comm::Message message;
    message.kind = kFinished;
    message.set_head(FinishedHead{.version = 7, .minibatch = 0});
    try {
      group.messenger(0).ask(1, message, {}, Deadline::after(20)).get();
      ADD_FAILURE() << "a version from the future was taken";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("worker 0: minibatch 0 of version 7 was never assigned to it"));
    }
    std::vector<double> bad(static_cast<size_t>(learner.elements()), std::nan(""));
    EXPECT_THROW(learner.push({bad.data(), 0, 0.1, 0}), ConfigError);
    std::vector<double> parameters(bad.size());
    learner.pull(parameters.data());
    EXPECT_THAT(parameters, Each(1.0));
  });
}

TEST(PsTraining, StaleGradientsCountLess) {
  // Two workers; the second always pushes at staleness 1.
  Class lesson{.policy = {plan::Rule::kAsync, 2, 0, 0}, .updates = 40, .stale_step = "inverse"};
  final_values(lesson, [](int) { return 0.5; });
  Class far{.policy = {plan::Rule::kAsync, 2, 0, 0}, .updates = 40, .stale_step = "distance"};
  auto values = final_values(far, [](int) { return 0.5; });
  EXPECT_TRUE(std::isfinite(values[0]));
}

TEST(PsTraining, AWarmStartHasOneWorker) {
  Class lesson{.policy = {plan::Rule::kKAsync, 3, 2, 0}, .updates = 30, .warm_start = 10};
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (worker != 0) {
        EXPECT_GE(learner.work().version, 10);
      }
      if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
    }
    if (worker == 0) learner.report();
  });
  EXPECT_EQ(lesson.version, 30);
}

TEST(PsTraining, StateIsFetchedAndSetAgain) {
  Class lesson{.policy = {plan::Rule::kAsync, 2, 0, 0}, .updates = 10};
  lesson.optimizer.momentum = 0.9;
  std::vector<double> values, velocity;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
    }
    if (worker != 0) return;
    values.resize(parameters.size());
    velocity.resize(parameters.size());
    EXPECT_EQ(learner.state_arrays(), 1);
    Learner::State state = learner.fetch_state({values.data(), velocity.data()});
    EXPECT_EQ(state.version, 10);
    EXPECT_EQ(state.steps, 10);
    learner.assign(0, values.data(), state.version, state.steps);
    learner.assign(1, velocity.data(), state.version, state.steps);
    std::vector<double> again(values.size()), velocity_again(values.size());
    learner.fetch_state({again.data(), velocity_again.data()});
    EXPECT_EQ(again, values);
    EXPECT_EQ(velocity_again, velocity);
    EXPECT_NE(velocity[0], 0);
  });
}

}  // namespace
}  // namespace yoke::ps
