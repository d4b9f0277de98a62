#include "yoke/ps/sparse/rounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/test_tables.h"

namespace yoke::ps::sparse {
namespace {

std::vector<double> values_of(const Rounds::Complete& one) {
  std::vector<double> values(one.sum.keys().size());
  std::memcpy(values.data(), one.sum.values(), values.size() * sizeof(double));
  return values;
}

// Each of these keys with this value.
bool give(Rounds& rounds, int worker, KeyRange range, int64_t time, const std::vector<Key>& keys,
          double value) {
  const std::vector<double> values(keys.size(), value);
  return rounds.add(worker, range, time, keys, bytes_of(values));
}

TEST(Rounds, ARangeIsCompleteOnceAllHaveGiven) {
  Rounds rounds(100, 2, DataType::kFloat64, 1);
  EXPECT_TRUE(give(rounds, 0, {10, 50}, 1, {10, 20}, 1));
  EXPECT_TRUE(rounds.take().empty());
  EXPECT_EQ(rounds.owed_by({10, 50}, 1), 1);
  EXPECT_TRUE(give(rounds, 1, {10, 50}, 1, {20, 40}, 2));
  auto complete = rounds.take();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(values_of(complete[0]), (std::vector<double>{1, 3, 2}));
  EXPECT_EQ(rounds.taken({10, 50}), 1);
  EXPECT_EQ(rounds.taken({9, 50}), 0);
  EXPECT_EQ(rounds.bytes(), 0u);
}

TEST(Rounds, MessagesMayBeCutDifferently) {
  Rounds rounds(100, 2, DataType::kFloat64, 1);
  give(rounds, 0, {0, 100}, 1, {5, 50, 95}, 1);
  give(rounds, 1, {0, 50}, 1, {5}, 1);
  auto first = rounds.take();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].range, (KeyRange{0, 50}));
  EXPECT_EQ(values_of(first[0]), std::vector<double>{2});
  give(rounds, 1, {50, 100}, 1, {}, 1);
  auto second = rounds.take();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(values_of(second[0]), (std::vector<double>{1, 1}));
  EXPECT_EQ(rounds.bytes(), 0u);
}

TEST(Rounds, AResendIsTakenOnceHoweverItIsCut) {
  Rounds rounds(100, 1, DataType::kFloat64, 1);
  EXPECT_TRUE(give(rounds, 0, {0, 60}, 1, {5, 50}, 1));
  rounds.take();
  EXPECT_FALSE(give(rounds, 0, {0, 60}, 1, {5, 50}, 1));
  EXPECT_TRUE(give(rounds, 0, {40, 100}, 1, {50, 70}, 1)) << "the second half is new";
  auto complete = rounds.take();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].range, (KeyRange{60, 100}));
  EXPECT_EQ(values_of(complete[0]), std::vector<double>{1});
  EXPECT_FALSE(give(rounds, 0, {0, 100}, 1, {5, 50, 70}, 1));
  EXPECT_TRUE(rounds.take().empty());
}

TEST(Rounds, LaterRoundsOfAFastWorkerWait) {
  Rounds rounds(100, 2, DataType::kFloat64, 1);
  for (int64_t time = 1; time <= 3; ++time) give(rounds, 0, {0, 100}, time, {7}, static_cast<double>(time));
  EXPECT_TRUE(rounds.take().empty());
  give(rounds, 1, {0, 100}, 1, {7}, 10);
  give(rounds, 1, {0, 100}, 2, {7}, 20);
  auto complete = rounds.take();
  ASSERT_EQ(complete.size(), 2u);
  EXPECT_EQ(values_of(complete[0]), std::vector<double>{11});
  EXPECT_EQ(values_of(complete[1]), std::vector<double>{22});
}

TEST(Rounds, ALostWorkerIsNotWaitedFor) {
  Rounds rounds(100, 3, DataType::kFloat64, 1);
  give(rounds, 0, {0, 100}, 1, {1}, 1);
  give(rounds, 1, {0, 100}, 1, {1}, 1);
  rounds.lose(2);
  auto complete = rounds.take();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(values_of(complete[0]), std::vector<double>{2});
  rounds.bring_back(2);
  give(rounds, 0, {0, 100}, 2, {1}, 1);
  give(rounds, 1, {0, 100}, 2, {1}, 1);
  EXPECT_TRUE(rounds.take().empty()) << "it is back";
  EXPECT_FALSE(give(rounds, 2, {0, 100}, 1, {1}, 1)) << "the others have taken round 1";
  give(rounds, 2, {0, 100}, 2, {1}, 1);
  EXPECT_EQ(rounds.take().size(), 1u);
}

TEST(Rounds, ACopyKnowsWhatWasTaken) {
  Rounds rounds(100, 2, DataType::kFloat64, 1);
  rounds.was_taken({10, 50}, 3);
  EXPECT_EQ(rounds.taken({10, 50}), 3);
  EXPECT_EQ(rounds.owed_by({10, 50}, 3), -1);
  EXPECT_FALSE(give(rounds, 0, {10, 50}, 3, {20}, 1)) << "a resend";
  EXPECT_TRUE(give(rounds, 0, {40, 60}, 3, {40, 55}, 1));
  EXPECT_TRUE(give(rounds, 1, {50, 60}, 3, {55}, 2));
  auto complete = rounds.take();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].range, (KeyRange{50, 60}));
  EXPECT_EQ(values_of(complete[0]), std::vector<double>{3});
}

TEST(Rounds, WhatIsForgottenIsGivenAgain) {
  Rounds rounds(100, 2, DataType::kFloat64, 1);
  for (int worker = 0; worker < 2; ++worker) give(rounds, worker, {0, 100}, 1, {7}, 1);
  rounds.take();
  give(rounds, 0, {0, 100}, 2, {7}, 1);
  rounds.forget_given();
  EXPECT_EQ(rounds.bytes(), 0u);
  EXPECT_EQ(rounds.owed_by({0, 100}, 2), 0);
  EXPECT_FALSE(give(rounds, 0, {0, 100}, 1, {7}, 1));
  EXPECT_TRUE(give(rounds, 0, {0, 100}, 2, {7}, 5));
  EXPECT_TRUE(give(rounds, 1, {0, 100}, 2, {7}, 6));
  auto complete = rounds.take();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(values_of(complete[0]), std::vector<double>{11});
}

TEST(Rounds, ClocksGrowWithRangesNotWithKeys) {
  Rounds rounds(kMostKeys, 4, DataType::kFloat32, 1);
  for (int worker = 0; worker < 4; ++worker)
    for (Key block = 0; block < 16; ++block)
      give(rounds, worker, {block << 50, (block + 1) << 50}, static_cast<int64_t>(block) + 1, {}, 0);
  EXPECT_EQ(rounds.take().size(), 16u);
  EXPECT_EQ(rounds.clock_ranges(), 5u * 17u)
      << "16 ranges and the rest, for each worker and for what is taken";
}

TEST(Rounds, AreAppliedOnceByServersOverShmAndTcp) {
  for (const char* backend : {"shm", "tcp"}) {
    for (int servers : {1, 3}) {
      TableShop shop{.workers = 3, .servers = servers};
      shop.client.tables = {{.width = 1, .keys = 1000, .type = DataType::kFloat64}};
      shop.client.message_bytes = 64;  // a few keys each
      shop.run(backend, [](Client& client, int worker) {
        std::vector<Key> keys;
        for (Key key = static_cast<Key>(worker); key < 1000; key += 2) keys.push_back(key);
        for (int64_t time = 1; time <= 4; ++time) {
          const std::vector<double> ones(keys.size(), 1);
          client.wait(client.push_round(0, {0, 1000}, time, keys, bytes_of(ones)));
          std::vector<double> seen(keys.size(), -1);
          client.wait(client.pull_round(0, {0, 1000}, time, keys, memory_of(seen)));
          for (size_t i = 0; i < keys.size(); ++i) {
            // Even keys are those of workers 0 and 2, but for key 0.
            const double each = keys[i] % 2 == 0 && keys[i] >= 2 ? 2 : 1;
            // Another worker may have completed the next round by now, but not without this one.
            ASSERT_EQ(seen[i], each * static_cast<double>(time)) << keys[i];
          }
        }
      });
    }
  }
}

TEST(Rounds, ARuleMayTakeAnotherStructureOnTheSameKeys) {
  TableShop shop{.workers = 2, .servers = 2};
  shop.client.tables = {{.width = 1, .keys = 100, .type = DataType::kFloat64, .pushed = 2}};
  // w = first / second: the quotient of sums shows that the function sees the aggregate.
  shop.make_rule = [](int) {
    return make_function(
        [](const RuleStep&, const RowBlock& rows) {
          const auto* pushed = static_cast<const double*>(rows.gradient);
          for (size_t i = 0; i < rows.keys.size(); ++i)
            static_cast<double*>(rows.values)[i] = pushed[2 * i] / pushed[2 * i + 1];
        },
        /*state_arrays=*/0, /*pushed=*/2);
  };
  shop.run("shm", [](Client& client, int worker) {
    const std::vector<Key> keys = {3, 70};
    const std::vector<double> pairs =
        worker == 0 ? std::vector<double>{1, 2, 3, 4} : std::vector<double>{5, 2, 6, 2};
    client.wait(client.push_round(0, {0, 100}, 1, keys, bytes_of(pairs)));
    std::vector<double> seen(2);
    client.wait(client.pull_round(0, {0, 100}, 1, keys, memory_of(seen)));
    EXPECT_EQ(seen, (std::vector<double>{1.5, 1.5}));
  });
}

TEST(Rounds, BadRoundsAreRefusedByName) {
  TableShop shop{.workers = 1, .servers = 1};
  shop.client.tables = {{.width = 1, .keys = 100}};
  shop.run("shm", [](Client& client, int) {
    const std::vector<Key> keys = {3};
    const std::vector<float> one = {1}, bad = {NAN};
    EXPECT_THROW(client.push_round(0, {5, 10}, 1, keys, bytes_of(one)), ConfigError);
    EXPECT_THROW(client.push_round(0, {0, 101}, 1, keys, bytes_of(one)), ConfigError);
    EXPECT_THROW(client.push_round(0, {0, 100}, 0, keys, bytes_of(one)), ConfigError);
    EXPECT_THROW(client.push_round(1, {0, 100}, 1, keys, bytes_of(one)), ConfigError);
    EXPECT_THROW(client.wait(client.push_round(0, {0, 100}, 1, keys, bytes_of(bad))), CommError);
    client.wait(client.push_round(0, {0, 100}, 1, keys, bytes_of(one)));
    std::vector<float> seen(1);
    client.wait(client.pull_round(0, {0, 100}, 1, keys, memory_of(seen)));
    EXPECT_EQ(seen[0], 1) << "a refused round was not given";
  });
}

}  // namespace
}  // namespace yoke::ps::sparse
