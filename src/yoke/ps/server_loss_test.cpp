// Servers with copies of their ranges on other servers, and what happens when some are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/client.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kWorkers = 2;
constexpr int kServers = 3;
constexpr int64_t kKeys = 1500;

// Workers add ones to all values, with several requests in flight; worker 0 closes `lost` in the middle.
struct Counting {
  const char* backend = "shm";
  int replicas = 1;
  std::vector<int> lost{};
  int pushes = 60;
  std::vector<double> values = std::vector<double>(kKeys, 0.0);

  void run() {
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(kWorkers + kServers, backend);
    for (int s = 0; s < kServers; ++s)
      shops.push_back(
          std::make_unique<Server>(group.messenger(kWorkers + s), ServerOptions{.workers = kWorkers,
                                                                                .servers = kServers,
                                                                                .replicas = replicas,
                                                                                .make_updater = make_adder(),
                                                                                .scheduler = {},
                                                                                .report = {}}));
    std::latch all_pushed(kWorkers);
    std::vector<std::thread> threads;
    for (int w = 0; w < kWorkers; ++w)
      threads.emplace_back([&, w] {
        try {
          work(group, w, all_pushed);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "worker " << w << ": " << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (int s = 0; s < kServers; ++s)
      if (std::find(lost.begin(), lost.end(), s) == lost.end()) shops[static_cast<size_t>(s)]->run();
  }

  // Twice `pushes` ones for each value: by ranges and by keys.
  void work(LocalGroup& group, int worker, std::latch& all_pushed) {
    Client client(group.messenger(worker), {.workers = kWorkers,
                                            .servers = kServers,
                                            .keys = kKeys,
                                            .type = DataType::kFloat64,
                                            .range_bytes = 400,
                                            .timeout = 60,
                                            .replicas = replicas});
    const std::vector<double> ones(kKeys, 1.0);
    std::vector<int64_t> keys(kKeys);
    for (int64_t i = 0; i < kKeys; ++i) keys[static_cast<size_t>(i)] = i;
    std::vector<double> pulled(kKeys);
    std::vector<Client::Timestamp> open;
    size_t next = 0;
    for (int i = 0; i < pushes; ++i) {
      open.push_back(client.push(0, std::span(ones)));
      if (i % 2 == 0)
        open.push_back(client.push_keys(keys, std::as_bytes(std::span(ones))));
      else
        open.push_back(
            client.push_pull(0, std::as_bytes(std::span(ones)), std::as_writable_bytes(std::span(pulled))));
      const bool falls = worker == 0 && next < lost.size() && i == 10 + 20 * static_cast<int>(next);
      if (falls) group.close(kWorkers + lost[next++]);
      if (i % 8 == 7)
        for (Client::Timestamp one : std::exchange(open, {})) client.wait(one);
    }
    for (Client::Timestamp one : open) client.wait(one);
    all_pushed.arrive_and_wait();
    if (worker == 0) client.wait(client.pull(0, std::span(values)));
  }
};

TEST(PsServerLoss, EveryPushCountsOnceWhicheverServerIsLost) {
  for (const char* backend : {"shm", "tcp"}) {
    for (int lost = 0; lost < kServers; ++lost) {
      SCOPED_TRACE(std::string(backend) + ", server " + std::to_string(lost));
      Counting counting{.backend = backend, .lost = {lost}};
      counting.run();
      EXPECT_THAT(counting.values, Each(2.0 * kWorkers * counting.pushes));
    }
  }
}

TEST(PsServerLoss, TwoCopiesSurviveTwoNeighbours) {
  for (std::vector<int> lost : {std::vector<int>{0, 1}, {2, 1}, {1, 2}}) {
    Counting counting{.replicas = 2, .lost = lost};
    counting.run();
    EXPECT_THAT(counting.values, Each(2.0 * kWorkers * counting.pushes));
  }
}

// A gradient of ones, so that every update moves every parameter by the learning rate, under every rule.
struct Training {
  Class lesson;
  int lost = 0;
  std::vector<double> values{};

  // The first worker that sees version 10 closes the server.
  void run() {
    std::atomic<bool> closed{false};
    lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      const std::vector<double> ones(parameters.size(), 1.0);
      while (learner.wait()) {
        if (learner.work().version >= 10 && !closed.exchange(true)) lesson.close_server(group, lost);
        if (learner.pull(parameters.data())) learner.push({ones.data(), 1, 0.125, 0});
      }
      if (worker != 0) return;
      learner.fetch_state({parameters.data()});
      learner.report();
      values = parameters;
    });
  }
};

TEST(PsServerLoss, EveryRuleGoesOnAndLosesNoUpdate) {
  int backends = 0;
  for (const std::string& name : plan::rule_names()) {
    for (int lost : {0, 1}) {
      const char* backend = ++backends % 2 == 0 ? "shm" : "tcp";
      SCOPED_TRACE(name + " without server " + std::to_string(lost) + " over " + backend);
      Training run{.lesson = {.policy = {plan::parse_rule(name), 3, 2, 1},
                              .servers = 3,
                              .updates = 40,
                              .backend = backend,
                              .replicas = 1},
                   .lost = lost};
      run.run();
      EXPECT_EQ(run.lesson.version, 40);
      EXPECT_EQ(run.lesson.counts.servers_lost, 1);
      EXPECT_THAT(run.lesson.news, Contains(HasSubstr("took over its parameters")));
      // bounded_delay averages the gradients of workers that were released together.
      if (name != "bounded_delay") {
        EXPECT_THAT(run.values, Each(1 - 0.125 * 40));
      }
    }
  }
}

TEST(PsServerLoss, AWorkerAndThenAServerAreLost) {
  for (auto rule : {plan::Rule::kSync, plan::Rule::kAsync, plan::Rule::kKBatchAsync}) {
    for (int lost : {0, 1}) {
      Class lesson{.policy = {rule, 3, 2, 0}, .servers = 3, .updates = 40, .replicas = 1};
      std::atomic<bool> gone{false}, closed{false};
      lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
        std::vector<double> parameters(static_cast<size_t>(learner.elements()));
        const Deadline patience = Deadline::after(20);
        for (int i = 0; learner.wait(); ++i) {
          if (worker == 2 && i == 1) {
            learner.abandon();
            group.close(worker);
            gone = true;
            return;
          }
          if (learner.work().version >= 15) {
            while (!gone && !patience.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (!closed.exchange(true)) lesson.close_server(group, lost);
          }
          if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
        }
        if (worker == 0) learner.report();
      });
      EXPECT_EQ(lesson.version, 40);
      EXPECT_TRUE(lesson.counts.workers[2].lost);
      EXPECT_EQ(lesson.counts.servers_lost, 1);
    }
  }
}

// The parameters times a number of each worker's own: sums depend on all of them and on their order.
std::vector<double> trained(double clip_norm, std::vector<int> lost, int replicas, bool delayed = false) {
  const plan::Rule rule = delayed ? plan::Rule::kBoundedDelay : plan::Rule::kSync;
  Class lesson{.policy = {rule, 3, 0, 0},
               .servers = 4,
               .updates = 30,
               .optimizer = {.momentum = 0.9},
               .clip_norm = clip_norm,
               .replicas = replicas};
  std::vector<double> values;
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    size_t next = 0;
    while (learner.wait()) {
      if (worker == 0 && next < lost.size() && learner.work().version >= 8 * (static_cast<int64_t>(next) + 1))
        lesson.close_server(group, lost[next++]);
      if (learner.pull(parameters.data())) step(learner, parameters, 0.1 + 0.01 * worker);
    }
    if (worker != 0) return;
    std::vector<double> momentum(parameters.size());
    learner.fetch_state({parameters.data(), momentum.data()});
    values = parameters;
    values.insert(values.end(), momentum.begin(), momentum.end());
  });
  return values;
}

TEST(PsServerLoss, ASynchronousRunEndsWithTheSameBits) {
  for (double clip_norm : {0.0, 0.5}) {
    const std::vector<double> undisturbed = trained(clip_norm, {}, 0);
    EXPECT_EQ(trained(clip_norm, {}, 1), undisturbed);
    EXPECT_EQ(trained(clip_norm, {0}, 1), undisturbed);
    EXPECT_EQ(trained(clip_norm, {2}, 1), undisturbed);
    EXPECT_EQ(trained(clip_norm, {0, 2}, 1), undisturbed) << "not neighbours";
    EXPECT_EQ(trained(clip_norm, {0, 1}, 2), undisturbed);
    EXPECT_EQ(trained(clip_norm, {3}, 2, /*delayed=*/true), trained(clip_norm, {}, 0, /*delayed=*/true));
  }
}

TEST(PsServerLoss, CopiesCostTheirShareOfThePushes) {
  constexpr int kLearners = 8;
  Class lesson{.policy = {plan::Rule::kSync, kLearners, 0, 0},
               .servers = 3,
               .updates = 40,
               .tensors = {30'000},
               .range_bytes = 32 << 10,
               .replicas = 2};
  lesson.run([&](Learner& learner, int, LocalGroup&) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait())
      if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
  });
  double pushed = 0, replicated = 0;
  for (const Server::Numbers& numbers : lesson.numbers) {
    pushed += static_cast<double>(numbers.pushed_bytes);
    replicated += static_cast<double>(numbers.replicated_bytes);
  }
  // k/n = 2/8, the start once, and what was received from whom.
  EXPECT_GE(replicated / pushed, 0.25);
  EXPECT_LE(replicated / pushed, 0.27);
}

TEST(PsServerLoss, LosingAllCopiesEndsTheRunWithTheNames) {
  Class lesson{.policy = {plan::Rule::kSync, 1, 0, 0}, .servers = 2, .updates = 1000, .replicas = 1};
  lesson.run([&](Learner& learner, int, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    try {
      for (int i = 0; learner.wait(); ++i) {
        if (i == 5) lesson.close_server(group, 1);
        if (i == 10) lesson.close_server(group, 0);
        if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
      }
      ADD_FAILURE() << "nobody has the parameters";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("parameter server 0 (rank 1), parameter server 1 (rank 2) are lost"));
    }
    learner.abandon();
  });
}

TEST(PsServerLoss, MoreCopiesThanOtherServersAreRefused) {
  LocalGroup group(2);
  EXPECT_THROW(Server(group.messenger(1), ServerOptions{.workers = 1, .servers = 1, .replicas = 1}),
               ConfigError);
}

}  // namespace
}  // namespace yoke::ps
