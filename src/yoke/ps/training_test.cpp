// Servers, scheduler and workers together, as threads over shared memory.
#include <gmock/gmock.h>

#include <cmath>
#include <mutex>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/learner.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

struct Class {
  plan::PolicyOptions policy;
  int servers = 2;
  int64_t updates = 20;
  std::vector<int64_t> tensors = {100, 3, 5000};
  int64_t range_bytes = 4096;
  UpdaterOptions optimizer{};
  std::string stale_step = "full";
  int64_t warm_start = 0;
  std::string backend = "shm";
  // Filled by run():
  Accounting counts{};
  int64_t version = 0;
  std::vector<Server::Numbers> numbers{};
  std::vector<std::string> news{};

  // `body(learner, worker, group)` on a thread for each worker; the first sets the start to ones.
  void run(const std::function<void(Learner&, int, LocalGroup&)>& body) {
    int workers = policy.workers;
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(workers + servers, backend);
    for (int s = 0; s < servers; ++s) {
      ServerOptions options;
      options.workers = workers;
      options.servers = servers;
      options.make_updater = make_optimizer(optimizer);
      options.scheduler.policy = policy;
      options.scheduler.updates = updates;
      options.scheduler.stale_step = stale_step;
      options.scheduler.warm_start = warm_start;
      options.scheduler.say = [this](const std::string& text) { news.push_back(text); };
      options.report = [this](const Accounting& all, int64_t at, int64_t) {
        counts = all;
        version = at;
        return std::string("counted");
      };
      shops.push_back(std::make_unique<Server>(group.messenger(workers + s), std::move(options)));
    }
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w)
      threads.emplace_back([&, w] {
        try {
          Learner learner(group.messenger(w), learner_options());
          if (w == 0) {
            std::vector<double> ones(static_cast<size_t>(learner.elements()), 1);
            learner.assign(0, ones.data(), 0, 0);
          }
          learner.join();
          body(learner, w, group);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "worker " << w << ": " << error.what();
        }
      });
    for (auto& thread : threads) thread.join();
    for (auto& shop : shops) shop->run();
    for (auto& shop : shops) numbers.push_back(shop->numbers());
  }

  LearnerOptions learner_options() const {
    LearnerOptions options;
    options.workers = policy.workers;
    options.servers = servers;
    options.tensors = tensors;
    options.type = DataType::kFloat64;
    options.range_bytes = range_bytes;
    options.timeout = 20;
    options.one_version = policy.rule == plan::Rule::kSync || plan::traits_of(policy.rule).cancels;
    options.measure_distance = stale_step == "distance";
    return options;
  }
};

// The gradient of a worker in these tests: its parameters times a number of its own.
void step(Learner& learner, std::vector<double>& parameters, double factor, double lr = 0.1) {
  std::vector<double> gradient(parameters);
  for (double& one : gradient) one *= factor;
  learner.push({gradient.data(), parameters[0], lr, 0});
}

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

TEST(PsTraining, OneAsynchronousWorkerIsPlainSgdBitForBit) {
  for (auto rule : {plan::Rule::kAsync, plan::Rule::kBoundedDelay, plan::Rule::kSsp}) {
    Class lesson{.policy = {rule, 1, 0, 0}, .updates = 100};
    auto values = final_values(lesson, [](int) { return 0.37; });
    double w = 1;
    for (int i = 0; i < 100; ++i) w = w - 0.1 * (w * 0.37);
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
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (!learner.pull(parameters.data())) continue;
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
        if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
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
      EXPECT_THAT(error.what(), HasSubstr("worker 0: minibatch 0 of version 7 was never given to it"));
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
