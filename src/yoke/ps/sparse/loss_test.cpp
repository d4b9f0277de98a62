// Servers with copies of their tables on other servers, and what happens when some are lost.
#include <gmock/gmock.h>

#include <array>
#include <latch>
#include <map>
#include <random>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/test_table_run.h"

namespace yoke::ps::sparse {
namespace {

using ::testing::HasSubstr;

constexpr int kWorkers = 2;
constexpr int kServers = 3;
constexpr int kPushes = 60;

std::vector<Key> random_keys(int worker, int push) {
  std::mt19937 random(static_cast<unsigned>(1000 * worker + push));
  std::vector<Key> keys;
  for (Key key = 0; key < 300; ++key)
    if (random() % 4 == 0) keys.push_back(key * (kMostKeys / 300));
  return keys;
}

// Workers push ones for random keys, several pushes in flight; worker 0 closes `lost` in the middle. Returns
// how often each key was counted.
std::map<Key, float> counted(const std::string& backend, int replicas, std::vector<int> lost) {
  std::vector<std::unique_ptr<Server>> shops;
  LocalGroup group(kWorkers + kServers, backend);
  for (int s = 0; s < kServers; ++s) {
    ServerOptions options;
    options.workers = kWorkers;
    options.servers = kServers;
    options.replicas = replicas;
    options.make_updater = make_adder();
    options.make_rule = [](int) { return make_rule({}); };
    shops.push_back(std::make_unique<Server>(group.messenger(kWorkers + s), std::move(options)));
  }
  std::map<Key, float> counts;
  std::latch all_pushed(kWorkers);
  auto work = [&](int worker) {
    Client client(group.messenger(worker), {.workers = kWorkers,
                                            .servers = kServers,
                                            .replicas = replicas,
                                            .message_bytes = 200,
                                            .timeout = 60});
    std::vector<std::vector<Key>> keys;
    for (int i = 0; i < kPushes; ++i) keys.push_back(random_keys(worker, i));
    const std::vector<float> ones(300, 1);
    std::vector<float> seen(300);
    std::vector<Client::Timestamp> open;
    size_t next = 0;
    for (int i = 0; i < kPushes; ++i) {
      const std::vector<Key>& list = keys[static_cast<size_t>(i)];
      open.push_back(client.push(0, list, bytes_of(ones).first(list.size() * sizeof(float))));
      open.push_back(client.pull(0, list, memory_of(seen).first(list.size() * sizeof(float))));
      if (worker == 0 && next < lost.size() && i == 10 + 20 * static_cast<int>(next))
        group.close(kWorkers + lost[next++]);
      if (i % 8 == 7)
        for (Client::Timestamp one : std::exchange(open, {})) client.wait(one);
    }
    for (Client::Timestamp one : open) client.wait(one);
    all_pushed.arrive_and_wait();
    if (worker != 0) return;
    const Client::Rows rows = client.pull_range(0, 0, kMostKeys);
    const auto* values = reinterpret_cast<const float*>(rows.values.data());
    for (size_t i = 0; i < rows.keys.size(); ++i) counts[rows.keys[i]] = values[i];
  };
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w)
    threads.emplace_back([&, w] {
      try {
        work(w);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "worker " << w << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int s = 0; s < kServers; ++s)
    if (std::find(lost.begin(), lost.end(), s) == lost.end()) shops[static_cast<size_t>(s)]->run();
  return counts;
}

TEST(SparseServerLoss, EveryPushCountsOnceWhicheverServerIsLost) {
  std::map<Key, float> expected;
  for (int worker = 0; worker < kWorkers; ++worker)
    for (int i = 0; i < kPushes; ++i)
      for (Key key : random_keys(worker, i)) expected[key] += 1;
  for (const char* backend : {"shm", "tcp"})
    for (int lost = 0; lost < kServers; ++lost) EXPECT_EQ(counted(backend, 1, {lost}), expected) << lost;
  EXPECT_EQ(counted("shm", 2, {0, 1}), expected);
  EXPECT_EQ(counted("shm", 2, {2, 1}), expected);
}

// All rows and their state at the end, of a run in which worker 0 closes servers at version 8, 16, ...
std::vector<double> trained(plan::PolicyOptions policy, std::vector<int> lost, int replicas,
                            int64_t updates = 30) {
  TableRun test{.policy = policy, .servers = 4, .updates = updates, .rule = "adagrad"};
  test.replicas = replicas;
  std::vector<double> values;
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup& group) {
    std::vector<double> dense(3);
    size_t next = 0;
    while (learner.wait()) {
      if (worker == 0 && next < lost.size() && learner.work().version >= 8 * (static_cast<int64_t>(next) + 1))
        test.close_server(group, lost[next++]);
      if (!learner.pull(dense.data())) continue;
      const Minibatch batch(worker, learner.work().version);
      std::vector<double> rows(batch.gradient.size());
      client.pull_at(learner.work().version, 0, batch.keys, memory_of(rows), /*all_servers=*/false);
      push(learner, client, batch);
    }
    if (worker != 0) return;
    learner.fetch_state({dense.data()}, [&](int64_t version) {
      values.clear();
      for (int64_t array = 0; array < 2; ++array) {
        const Client::Rows rows = client.fetch(0, array, Client::From::kSnapshot, version);
        const auto* data = reinterpret_cast<const double*>(rows.values.data());
        values.insert(values.end(), data, data + rows.values.size() / sizeof(double));
      }
    });
    EXPECT_EQ(learner.end().version, updates);
  });
  return values;
}

TEST(SparseServerLoss, ASynchronousRunEndsWithTheSameBits) {
  const plan::PolicyOptions sync{plan::Rule::kSync, 3, 0, 0};
  const std::vector<double> undisturbed = trained(sync, {}, 0);
  EXPECT_FALSE(undisturbed.empty());
  EXPECT_EQ(trained(sync, {}, 1), undisturbed);
  for (int lost = 0; lost < 4; ++lost) EXPECT_EQ(trained(sync, {lost}, 1), undisturbed) << lost;
  EXPECT_EQ(trained(sync, {0, 2}, 1), undisturbed) << "not neighbours";
  EXPECT_EQ(trained(sync, {0, 1}, 2), undisturbed);
}

// Servers are closed at these versions, once as many copies were made anew as given.
std::vector<double> trained_with_new_copies(plan::PolicyOptions policy, int servers_lost,
                                            int64_t updates = 60) {
  TableRun test{.policy = policy, .servers = 4, .updates = updates, .rule = "adagrad"};
  test.replicas = 1;
  std::vector<double> values;
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup& group) {
    std::vector<double> dense(3);
    int next = 0;
    while (learner.wait()) {
      if (worker == 0 && next < servers_lost && learner.work().version >= 8 + 20 * next) {
        if (next > 0) {
          EXPECT_TRUE(test.heard("has a copy of the parameters", 2));
        }
        test.close_server(group, next++);
      }
      if (!learner.pull(dense.data())) continue;
      const Minibatch batch(worker, learner.work().version);
      std::vector<double> rows(batch.gradient.size());
      client.pull_at(learner.work().version, 0, batch.keys, memory_of(rows), /*all_servers=*/false);
      push(learner, client, batch);
    }
    if (worker != 0) return;
    learner.fetch_state({dense.data()}, [&](int64_t version) {
      values.clear();
      for (int64_t array = 0; array < 2; ++array) {
        const Client::Rows rows = client.fetch(0, array, Client::From::kSnapshot, version);
        const auto* data = reinterpret_cast<const double*>(rows.values.data());
        values.insert(values.end(), data, data + rows.values.size() / sizeof(double));
      }
    });
  });
  return values;
}

TEST(SparseServerLoss, CopiesAreMadeAnewSoThatANeighbourMayBeLost) {
  const plan::PolicyOptions sync{plan::Rule::kSync, 3, 0, 0};
  const std::vector<double> undisturbed = trained_with_new_copies(sync, 0);
  EXPECT_EQ(trained_with_new_copies(sync, 2), undisturbed);
  for (plan::Rule rule : {plan::Rule::kKBatchSync, plan::Rule::kAsync, plan::Rule::kKAsync})
    EXPECT_FALSE(trained_with_new_copies({rule, 3, 2, 2}, 2).empty()) << static_cast<int>(rule);
}

TEST(SparseServerLoss, TablesMoveToServersThatJoin) {
  for (int replicas : {0, 1}) {
    std::vector<std::vector<double>> results;
    for (bool joins : {false, true}) {
      TableRun test{.policy = {plan::Rule::kSync, 2, 0, 0}, .servers = 2, .updates = 60, .rule = "adagrad"};
      test.replicas = replicas;
      test.places = 8;
      std::vector<double>& values = results.emplace_back();
      test.run([&](Learner& learner, Client& client, int worker, LocalGroup&) {
        std::vector<double> dense(3);
        while (learner.wait()) {
          if (worker == 0 && joins && learner.work().version == 5) test.join_server();
          if (worker == 0 && joins && learner.work().version == 40) {
            EXPECT_TRUE(test.heard("serves home", 2));
          }
          if (!learner.pull(dense.data())) continue;
          const Minibatch batch(worker, learner.work().version);
          std::vector<double> rows(batch.gradient.size());
          client.pull_at(learner.work().version, 0, batch.keys, memory_of(rows), /*all_servers=*/false);
          push(learner, client, batch);
        }
        if (worker != 0) return;
        const Client::Rows rows = client.pull_range(0, 0, kSpace);
        const auto* data = reinterpret_cast<const double*>(rows.values.data());
        values.assign(data, data + rows.values.size() / sizeof(double));
      });
    }
    EXPECT_FALSE(results[0].empty());
    EXPECT_EQ(results[1], results[0]) << replicas;
  }
}

TEST(SparseServerLoss, EveryRuleContinues) {
  for (plan::Rule rule :
       {plan::Rule::kKSync, plan::Rule::kKBatchSync, plan::Rule::kAsync, plan::Rule::kKAsync,
        plan::Rule::kKBatchAsync, plan::Rule::kBoundedDelay, plan::Rule::kSsp}) {
    SCOPED_TRACE(static_cast<int>(rule));
    EXPECT_FALSE(trained({rule, 3, 2, 2}, {0}, 1, 60).empty());
    EXPECT_FALSE(trained({rule, 3, 2, 2}, {2}, 1, 60).empty());
  }
}

TEST(SparseServerLoss, CopiesCostTheirShareOfThePushes) {
  constexpr int kLearners = 8;
  TableRun test{.policy = {plan::Rule::kSync, kLearners, 0, 0}, .servers = 3, .updates = 20};
  test.replicas = 2;
  int64_t sent = 0;
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup&) {
    std::vector<double> dense(3);
    Minibatch batch(0, 0);  // the same keys for all
    for (Key key = 0; key < 3000; ++key) batch.keys.push_back(kSpace / 3000 * key + 1);
    std::sort(batch.keys.begin(), batch.keys.end());
    batch.gradient.assign(2 * batch.keys.size(), 1);
    while (learner.wait()) {
      learner.pull(dense.data());
      push(learner, client, batch);
    }
    if (worker == 0) sent = client.traffic().sent + client.traffic().keys_saved;
  });
  double replicated = 0;
  for (const Server::Numbers& numbers : test.numbers)
    replicated += static_cast<double>(numbers.replicated_bytes);
  // k/n = 2/8, and a head for each.
  const double share = replicated / (kLearners * static_cast<double>(sent));
  EXPECT_GE(share, 0.25);
  EXPECT_LE(share, 0.28);
}

TEST(SparseServerLoss, LosingAllCopiesEndsTheRunWithTheNames) {
  TableRun test{.policy = {plan::Rule::kSync, 1, 0, 0}, .servers = 3, .updates = 1000};
  test.replicas = 1;
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup& group) {
    std::vector<double> dense(3);
    try {
      for (int i = 0; learner.wait(); ++i) {
        for (int server = 1; i == 5 && server < 3; ++server) test.close_server(group, server);
        learner.pull(dense.data());
        push(learner, client, Minibatch(worker, i));
      }
      ADD_FAILURE() << "nobody has the rows of server 1";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("parameter server 1 (rank 2), parameter server 2 (rank 3) are lost"));
    }
    learner.abandon();
    test.close_server(group, 0);
  });
}

// Workers give rounds of four blocks of keys, each in flight; worker 0 closes servers 5 and 25 rounds after
// the start, the second once copies were made anew. Returns all rows, and their state.
std::vector<double> rounds_given(const std::string& backend, int replicas, std::vector<int> lost) {
  constexpr int kBlocks = 4, kRounds = 50;
  TableRun test{.policy = {plan::Rule::kSync, kWorkers, 0, 0}, .servers = 4, .updates = 1, .rule = "adagrad"};
  test.backend = backend;
  test.replicas = replicas;
  std::vector<double> values;
  std::latch all_given(kWorkers);
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup& group) {
    std::vector<Minibatch> batches;
    for (int64_t time = 1; time <= kRounds; ++time) batches.emplace_back(worker, time);
    std::array<Client::Timestamp, kBlocks> open{};
    size_t next = 0;
    for (int64_t time = 1; time <= kRounds; ++time) {
      const size_t block = static_cast<size_t>(time) % kBlocks;
      if (open[block] != 0) client.wait(open[block]);
      if (worker == 0 && next < lost.size() && time == 5 + 20 * static_cast<int64_t>(next)) {
        if (next > 0 && replicas == 1) {
          EXPECT_TRUE(test.heard("has a copy of the parameters", 2));
        }
        test.close_server(group, lost[next++]);
      }
      const KeyRange range{kSpace / kBlocks * block, kSpace / kBlocks * (block + 1)};
      const Minibatch& batch = batches[static_cast<size_t>(time - 1)];
      const auto at = [&](Key key) {
        return std::lower_bound(batch.keys.begin(), batch.keys.end(), key) - batch.keys.begin();
      };
      const auto first = static_cast<size_t>(at(range.begin)), end = static_cast<size_t>(at(range.end));
      open[block] =
          client.push_round(0, range, time, std::span(batch.keys).subspan(first, end - first),
                            std::as_bytes(std::span(batch.gradient).subspan(2 * first, 2 * (end - first))));
    }
    for (Client::Timestamp one : open) client.wait(one);
    all_given.arrive_and_wait();
    std::vector<double> dense(3);
    while (learner.wait()) {
      learner.pull(dense.data());
      push(learner, client, Minibatch(worker, 0));
    }
    if (worker != 0) return;
    for (int64_t array = 0; array < 2; ++array) {
      const Client::Rows rows = client.fetch(0, array, Client::From::kNewest, 1);
      const auto* data = reinterpret_cast<const double*>(rows.values.data());
      values.insert(values.end(), data, data + rows.values.size() / sizeof(double));
    }
  });
  return values;
}

TEST(SparseServerLoss, NoRoundIsLostAndNoneIsTakenTwice) {
  const std::vector<double> undisturbed = rounds_given("shm", 0, {});
  EXPECT_FALSE(undisturbed.empty());
  EXPECT_EQ(rounds_given("shm", 1, {}), undisturbed);
  for (const char* backend : {"shm", "tcp"})
    for (int lost = 0; lost < 4; ++lost) EXPECT_EQ(rounds_given(backend, 1, {lost}), undisturbed) << lost;
  EXPECT_EQ(rounds_given("shm", 1, {1, 2}), undisturbed) << "neighbours, one after the other";
  EXPECT_EQ(rounds_given("shm", 2, {0, 1}), undisturbed);
}

TEST(SparseServerLoss, RoundsMoveToServersThatJoin) {
  std::vector<std::vector<double>> results;
  for (bool joins : {false, true}) {
    TableRun test{
        .policy = {plan::Rule::kSync, kWorkers, 0, 0}, .servers = 2, .updates = 40, .rule = "adagrad"};
    test.places = 8;
    std::vector<double>& values = results.emplace_back();
    test.run([&](Learner& learner, Client& client, int worker, LocalGroup&) {
      std::vector<double> dense(3);
      Minibatch none(worker, 0);
      none.keys.clear();
      none.gradient.clear();
      while (learner.wait()) {
        const int64_t version = learner.work().version;
        if (worker == 0 && joins && version == 5) test.join_server();
        if (worker == 0 && joins && version == 30) {
          EXPECT_TRUE(test.heard("serves home", 2));
        }
        if (!learner.pull(dense.data())) continue;
        const Minibatch batch(worker, version);
        client.wait(client.push_round(0, {0, kSpace}, version + 1, batch.keys, bytes_of(batch.gradient)));
        push(learner, client, none);
      }
      if (worker != 0) return;
      const Client::Rows rows = client.pull_range(0, 0, kSpace);
      const auto* data = reinterpret_cast<const double*>(rows.values.data());
      values.assign(data, data + rows.values.size() / sizeof(double));
    });
  }
  EXPECT_FALSE(results[0].empty());
  EXPECT_EQ(results[1], results[0]);
}

}  // namespace
}  // namespace yoke::ps::sparse
