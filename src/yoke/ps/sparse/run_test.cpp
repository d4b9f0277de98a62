// Tables under the scheduler: updates, versions, snapshots and lost workers, with a dense range beside them.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "yoke/ps/sparse/test_table_run.h"

namespace yoke::ps::sparse {
namespace {

// Of `updates` synchronous updates, by one thread.
std::map<Key, std::array<double, 2>> reference(int workers, int64_t updates,
                                               std::vector<double>* squares = nullptr) {
  std::map<Key, std::array<double, 2>> all;
  for (int64_t update = 0; update < updates; ++update) {
    std::map<Key, std::array<double, 2>> sum;
    for (int worker = 0; worker < workers; ++worker) {
      const Minibatch batch(worker, update);
      for (size_t i = 0; i < batch.keys.size(); ++i)
        for (size_t k = 0; k < 2; ++k) sum[batch.keys[i]][k] += batch.gradient[2 * i + k];
    }
    double square = 0;
    for (const auto& [key, row] : sum)
      for (size_t k = 0; k < 2; ++k) {
        all[key][k] -= 0.1 * row[k] / workers;
        square += row[k] / workers * row[k] / workers;
      }
    if (squares != nullptr) squares->push_back(square);
  }
  return all;
}

void expect_equal(const Client::Rows& rows, const std::map<Key, std::array<double, 2>>& expected) {
  ASSERT_EQ(rows.keys.size(), expected.size());
  size_t i = 0;
  for (const auto& [key, row] : expected) {
    EXPECT_EQ(rows.keys[i], key);
    std::array<double, 2> seen{};
    std::memcpy(seen.data(), rows.values.data() + i * sizeof(seen), sizeof(seen));
    for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(seen[k], row[k], 1e-12);
    ++i;
  }
}

TEST(SparseRun, SynchronousUpdatesEqualOneThread) {
  for (const char* backend : {"shm", "tcp"}) {
    TableRun test{.policy = {plan::Rule::kSync, 3, 0, 0}, .servers = 3, .backend = backend};
    std::vector<double> squares;
    const auto expected = reference(3, test.updates, &squares);
    test.run([&](Learner& learner, Client& client, int worker, LocalGroup&) {
      std::vector<double> dense(3);
      for (int64_t step = 0; learner.wait(); ++step) {
        ASSERT_TRUE(learner.pull(dense.data()));
        const int64_t version = learner.work().version;
        const Minibatch batch(worker, version);
        std::vector<double> rows(batch.gradient.size());
        const Client::Pulled pulled =
            client.pull_at(version, 0, batch.keys, memory_of(rows), /*all_servers=*/true);
        EXPECT_EQ(pulled.newest, version);
        EXPECT_EQ(pulled.oldest, version);
        if (version > 0) {
          EXPECT_NEAR(pulled.square, squares[static_cast<size_t>(version) - 1], 1e-12);
        }
        const auto now = reference(3, version);
        for (size_t i = 0; i < batch.keys.size(); ++i) {
          auto row = now.find(batch.keys[i]);
          EXPECT_NEAR(rows[2 * i], row == now.end() ? 0 : row->second[0], 1e-12);
        }
        push(learner, client, batch, /*measure=*/true);
      }
      expect_equal(client.fetch(0, 0, Client::From::kNewest, learner.end().version), expected);
    });
    for (const auto& one : test.numbers) EXPECT_EQ(one.tables.duplicates, 0);
  }
}

// The rows of the next minibatch are asked for before this one is pushed: they have what it changes.
TEST(SparseRun, RowsAskedForAheadAreThoseOfTheirVersion) {
  TableRun test{.policy = {plan::Rule::kSync, 3, 0, 0}, .servers = 2};
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup&) {
    struct Ahead {
      std::vector<Key> keys;
      std::vector<double> rows;
      Client::Pending pending;
    };
    auto ask = [&](int64_t version) {
      auto ahead = std::make_shared<Ahead>();
      ahead->keys = Minibatch(worker, version).keys;
      ahead->rows.resize(2 * ahead->keys.size());
      ahead->pending = client.begin_pull_at(version, 0, ahead->keys, memory_of(ahead->rows),
                                            /*all_servers=*/false, ahead);
      return ahead;
    };
    std::vector<double> dense(3);
    std::shared_ptr<Ahead> here = ask(0);
    while (learner.wait()) {
      ASSERT_TRUE(learner.pull(dense.data()));
      const int64_t version = learner.work().version;
      std::shared_ptr<Ahead> next =
          ask(version + 1);  // also behind the last update, which is not answered by one
      const Client::Pulled pulled = client.end_pull_at(here->pending);
      EXPECT_EQ(pulled.oldest, version);
      EXPECT_EQ(pulled.newest, version);
      const auto now = reference(3, version);
      for (size_t i = 0; i < here->keys.size(); ++i) {
        auto row = now.find(here->keys[i]);
        EXPECT_NEAR(here->rows[2 * i], row == now.end() ? 0 : row->second[0], 1e-12);
      }
      push(learner, client, Minibatch(worker, version));
      here = std::move(next);
    }
    ask(1000);
    const Client::Pending never = ask(1001)->pending;
    EXPECT_EQ(client.end_pull_at(never).newest, 1001) << "answered, though nothing has that version";
    EXPECT_EQ(client.end_pull_at(never).oldest, learner.end().version);
  });
}

TEST(SparseRun, FunctionsOfTheProgramSeeTheSumOfAllWorkers) {
  TableRun test{.policy = {plan::Rule::kSync, 3, 0, 0}};
  // Counts the updates of a key, each with the sum of three ones.
  test.make = [](int) {
    return make_function([](const RuleStep& step, const RowBlock& rows) {
      EXPECT_NEAR(step.weight, 1.0 / 3, 1e-12);
      for (int64_t i = 0; i < rows.count(); ++i) {
        EXPECT_EQ(static_cast<const double*>(rows.gradient)[i], 3);
        static_cast<double*>(rows.values)[i] += 1;
      }
    });
  };
  test.run([&](Learner& learner, Client& client, int, LocalGroup&) {
    std::vector<double> dense(3);
    Minibatch batch(0, 0);
    batch.keys = {3, kSpace - 1};
    batch.gradient.assign(4, 1);
    while (learner.wait()) {
      learner.pull(dense.data());
      push(learner, client, batch);
    }
    const Client::Rows rows = client.fetch(0, 0, Client::From::kNewest, learner.end().version);
    std::vector<double> counts(rows.values.size() / sizeof(double));
    std::memcpy(counts.data(), rows.values.data(), rows.values.size());
    EXPECT_EQ(counts, std::vector<double>(4, 10));
  });
}

TEST(SparseRun, ASnapshotHasOneVersionOfTablesAndRanges) {
  TableRun test{.policy = {plan::Rule::kAsync, 2, 1, 0}, .updates = 200};
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup&) {
    std::vector<double> dense(3), fetched(3);
    // A row and the dense values move by the same step in each update.
    const std::vector<Key> keys = {1, kSpace - 2};
    const std::vector<double> ones(4, 1);
    for (int64_t step = 0; learner.wait(); ++step) {
      learner.pull(dense.data());
      Minibatch batch(0, 0);
      batch.keys = keys;
      batch.gradient = ones;
      push(learner, client, batch);
      if (worker != 0 || step % 20 != 7) continue;
      Client::Rows rows;
      auto state = learner.fetch_state({fetched.data()}, [&](int64_t version) {
        rows = client.fetch(0, 0, Client::From::kSnapshot, version);
      });
      std::vector<double> values(rows.values.size() / sizeof(double));
      std::memcpy(values.data(), rows.values.data(), rows.values.size());
      for (double value : values) EXPECT_NEAR(value, fetched[0], 1e-9) << "at version " << state.version;
      EXPECT_NEAR(fetched[0], -0.1 * static_cast<double>(state.version), 1e-9);
    }
  });
}

TEST(SparseRun, ALostWorkerEndsNothing) {
  TableRun test{.policy = {plan::Rule::kSync, 3, 0, 0}, .updates = 30};
  test.run([&](Learner& learner, Client& client, int worker, LocalGroup& group) {
    std::vector<double> dense(3);
    while (learner.wait()) {
      learner.pull(dense.data());
      if (worker == 2 && learner.work().version == 5) {
        learner.abandon();
        group.close(2);
        return;
      }
      const Minibatch batch(worker, learner.work().version);
      std::vector<double> rows(batch.gradient.size());
      client.pull_at(learner.work().version, 0, batch.keys, memory_of(rows), /*all_servers=*/false);
      push(learner, client, batch);
    }
    EXPECT_EQ(learner.end().version, 30);
  });
}

}  // namespace
}  // namespace yoke::ps::sparse
