// Gradients of an update are added in the order of workers, whatever order they come in.
#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <thread>

#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

// Workers come in another order in every update; their gradients have sums that depend on the order.
std::vector<double> final_values(Class& lesson, unsigned seed) {
  std::vector<double> values;
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    std::mt19937 random(seed * 100 + static_cast<unsigned>(worker));
    while (learner.wait()) {
      if (!learner.pull(parameters.data())) continue;
      learner.sleep(1e-3 * static_cast<double>(random() % 4));
      std::vector<double> gradient(parameters.size());
      for (size_t i = 0; i < gradient.size(); ++i)
        gradient[i] =
            std::pow(10.0, worker * 4) * (parameters[i] + 1.0 / static_cast<double>(3 + worker + i));
      learner.push({gradient.data(), 1.0 / (3 + worker), 1e-14, 0});
    }
    if (worker != 0) return;
    values.resize(parameters.size());
    learner.fetch_state({values.data()});
    learner.report();
  });
  return values;
}

TEST(PsOrder, EqualRunsOfASynchronousRuleHaveEqualBits) {
  for (const plan::PolicyOptions& policy : {plan::PolicyOptions{plan::Rule::kSync, 4, 0, 0},
                                            {plan::Rule::kKSync, 4, 4, 0},
                                            {plan::Rule::kBoundedDelay, 4, 0, 0}}) {
    std::vector<double> first;
    for (unsigned seed = 0; seed < 3; ++seed) {
      Class lesson{.policy = policy, .updates = policy.rule == plan::Rule::kBoundedDelay ? 40 : 10};
      std::vector<double> values = final_values(lesson, seed);
      if (seed == 0) first = values;
      EXPECT_EQ(values, first) << plan::to_string(policy.rule) << " seed " << seed;
    }
  }
}

TEST(PsOrder, WhatComesEarlyIsHeldWithinItsBound) {
  constexpr int kWorkers = 8;
  Class lesson{
      .policy = {plan::Rule::kSync, kWorkers, 0, 0}, .servers = 2, .updates = 3, .tensors = {100'000}};
  lesson.run([&](Learner& learner, int worker, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (!learner.pull(parameters.data())) continue;
      if (worker == 0) learner.sleep(0.1);  // all others come first
      step(learner, parameters, 0.5);
    }
  });
  for (const Server::Numbers& numbers : lesson.numbers) {
    EXPECT_GT(numbers.most_early_bytes, 0u);
    EXPECT_LE(numbers.most_early_bytes, (kWorkers - 1) * kPushesAhead * 2 * 4096);
    EXPECT_LT(numbers.most_early_bytes, (kWorkers - 1) * numbers.parameter_bytes / 2);
  }
}

TEST(PsOrder, ARunThatIsStoppedLetsGoWhoWaitsForItsTurn) {
  for (int servers : {1, 2}) {
    Class lesson{.policy = {plan::Rule::kSync, 2, 0, 0}, .servers = servers, .updates = 100};
    lesson.run([&](Learner& learner, int worker, LocalGroup&) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      for (int i = 0; learner.wait(); ++i) {
        if (!learner.pull(parameters.data())) continue;
        if (worker == 0 && i == 3) {
          learner.sleep(0.05);  // the other has pushed
          learner.ask_stop(15);
        } else {
          step(learner, parameters, 0.5);
        }
      }
      EXPECT_EQ(learner.end().version, 3);
      EXPECT_EQ(learner.end().signal, 15);
    });
  }
}

TEST(PsOrder, ALostWorkerIsNotWaitedFor) {
  Class lesson{.policy = {plan::Rule::kSync, 3, 0, 0}, .updates = 20};
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    for (int i = 0; learner.wait(); ++i) {
      if (!learner.pull(parameters.data())) continue;
      if (worker == 1 && i == 3) {
        learner.sleep(0.02);  // the last has pushed and waits for its turn
        learner.abandon();
        return group.close(worker);
      }
      step(learner, parameters, 0.5);
    }
    if (worker == 0) learner.report();
  });
  EXPECT_EQ(lesson.version, 20);
}

}  // namespace
}  // namespace yoke::ps
