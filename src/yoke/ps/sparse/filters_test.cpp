#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/fixed_point.h"
#include "yoke/ps/sparse/key_cache.h"
#include "yoke/ps/sparse/row_filters.h"
#include "yoke/ps/sparse/test_tables.h"

namespace yoke::ps::sparse {
namespace {

TEST(KeyCache, HashesDependOnKeysOrderAndNumber) {
  std::vector<Key> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const uint64_t hash = hash_of(keys);
  EXPECT_EQ(hash_of(std::vector<Key>(keys)), hash);
  for (size_t i = 0; i < keys.size(); ++i) {
    std::vector<Key> other = keys;
    other[i] += 100;
    EXPECT_NE(hash_of(other), hash);
  }
  std::vector<Key> swapped = keys;
  std::swap(swapped[0], swapped[4]);
  EXPECT_NE(hash_of(swapped), hash);
  EXPECT_NE(hash_of(std::span(keys).first(8)), hash);
  EXPECT_NE(hash_of(std::vector<Key>{0}), hash_of(std::vector<Key>{0, 0}));
}

TEST(KeyCache, KeepsTheLatestLists) {
  KeptLists lists;
  std::vector<std::vector<Key>> sent;
  for (Key i = 0; i < kMostLists + 1; ++i) {
    sent.push_back({i, i + 1});
    lists.keep(hash_of(sent.back()), sent.back());
  }
  EXPECT_EQ(lists.find(hash_of(sent.front()), 2), nullptr);
  ASSERT_NE(lists.find(hash_of(sent.back()), 2), nullptr);
  EXPECT_EQ(lists.find(hash_of(sent.back()), 2)->keys, sent.back());
  EXPECT_EQ(lists.find(hash_of(sent.back()), 3), nullptr);
}

TEST(KeyCache, TheSecondMessageIsEightBytesAKeyShorter) {
  constexpr int64_t kKeys = 1000;
  for (bool cache : {true, false}) {
    TableShop shop{.client = {.tables = {{.type = DataType::kFloat64}}, .key_cache = cache}};
    shop.run("shm", [&](Client& client, int) {
      std::vector<Key> keys(kKeys);
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
      std::vector<double> ones(kKeys, 1), seen(kKeys);
      client.wait(client.push(0, keys, bytes_of(ones)));
      EXPECT_EQ(client.traffic().sent, kKeys * 8 + kKeys * 8);
      client.wait(client.push(0, keys, bytes_of(ones)));
      EXPECT_EQ(client.traffic().sent, kKeys * 16 + kKeys * (cache ? 8 : 16));
      client.wait(client.pull(0, keys, memory_of(seen)));
      EXPECT_EQ(client.traffic().sent, kKeys * 16 + kKeys * (cache ? 8 : 24));
      EXPECT_EQ(client.traffic().keys_saved, cache ? 2 * kKeys * 8 : 0);
      EXPECT_EQ(client.traffic().received, kKeys * 8);
      EXPECT_THAT(seen, ::testing::Each(2.0));
    });
    EXPECT_EQ(shop.numbers[0].tables.cached_lists, cache ? 2 : 0);
  }
}

TEST(KeyCache, BothEndsDropTheOldestLists) {
  SentLists sent;
  for (uint64_t hash = 0; hash <= kMostLists; ++hash) sent.sent(hash, 8);
  EXPECT_FALSE(sent.has(0));
  EXPECT_TRUE(sent.has(1));
  sent.forget(5);
  EXPECT_FALSE(sent.has(5));
  sent.sent(5, kMostListBytes);
  EXPECT_TRUE(sent.has(5));
  EXPECT_FALSE(sent.has(6)) << "by bytes";
  KeptLists kept;
  const std::vector<Key> large(kMostListBytes / sizeof(Key), 1), small = {2};
  kept.keep(1, small);
  kept.keep(2, large);
  EXPECT_EQ(kept.find(1, 1), nullptr);
  EXPECT_EQ(kept.bytes(), kMostListBytes);
}

TEST(KeyCache, AListThatTheServerHasDroppedIsSentAgain) {
  TableShop shop;
  shop.run_messengers("shm", [&](comm::Messenger& messenger, const ClientOptions& options, int) {
    Client one(messenger, options);
    const std::vector<Key> keys = {7, 8};
    std::vector<float> values = {1, 1}, seen = {0, 0};
    one.wait(one.pull(0, keys, memory_of(seen)));
    // Another client of the same worker fills the server's memory of lists.
    ClientOptions second = options;
    second.says_goodbye = false;
    Client other(messenger, second);
    Client::Timestamp last = 0;
    std::vector<std::vector<Key>> lists;
    std::vector<float> many(kMostLists + 1);
    for (Key key = 0; key <= kMostLists; ++key) lists.push_back({1000 + key});
    for (size_t i = 0; i < lists.size(); ++i)
      last = other.pull(0, lists[i], memory_of(many).subspan(i * sizeof(float), sizeof(float)));
    other.wait(last);
    one.wait(one.push(0, keys, bytes_of(values)));
    one.wait(one.pull(0, keys, memory_of(seen)));
    EXPECT_THAT(seen, ::testing::Each(1.0F));
    EXPECT_EQ(one.traffic().messages, 4) << "the push was sent twice";
  });
}

// The mean over many roundings is the value, to four standard errors.
TEST(FixedPoint, RoundingIsUnbiased) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(64);
  for (float& one : values) one = normal(random);
  values[5] = 0;
  for (int bytes : {1, 2}) {
    RoundingBits bits(11);
    constexpr int kRounds = 4000;
    std::vector<double> sum(values.size(), 0);
    std::vector<std::byte> fixed(values.size() * static_cast<size_t>(bytes));
    std::vector<float> back(values.size());
    double unit = 0;
    for (int round = 0; round < kRounds; ++round) {
      unit = to_fixed_point(bytes_of(values), DataType::kFloat32, bytes, bits, fixed.data());
      from_fixed_point(fixed, bytes, unit, DataType::kFloat32, reinterpret_cast<std::byte*>(back.data()));
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_LE(std::abs(back[i] - values[i]), unit * 1.0001);
        sum[i] += back[i];
      }
    }
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(sum[i] / kRounds, values[i], 4 * 0.5 * unit / std::sqrt(kRounds)) << i;
    EXPECT_EQ(sum[5], 0);
  }
}

TEST(FixedPoint, ExtremesAndZerosSurvive) {
  for (int bytes : {1, 2}) {
    for (double most : {0.0, 1e-320, 1e-30, 1.0, 1e300}) {
      std::vector<double> values = {most, -most, 0}, back(3);
      std::vector<std::byte> fixed(3 * static_cast<size_t>(bytes));
      RoundingBits bits(1);
      double unit = to_fixed_point(bytes_of(values), DataType::kFloat64, bytes, bits, fixed.data());
      from_fixed_point(fixed, bytes, unit, DataType::kFloat64, reinterpret_cast<std::byte*>(back.data()));
      for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(back[i], values[i], most < 1e-300 ? 1e-300 : most * 1e-9);
    }
  }
}

TEST(FixedPoint, PushesAreSmallerAndTheirSumIsClose) {
  constexpr int64_t kKeys = 500;
  for (int bytes : {1, 2}) {
    TableShop shop{.client = {.key_cache = false, .fixed_point = bytes}};
    shop.run("shm", [&](Client& client, int) {
      std::vector<Key> keys(kKeys);
      std::vector<float> values(kKeys), seen(kKeys);
      for (size_t i = 0; i < keys.size(); ++i) {
        keys[i] = i;
        values[i] = std::sin(static_cast<float>(i));
      }
      constexpr int kPushes = 400;
      for (int i = 0; i < kPushes; ++i) client.wait(client.push(0, keys, bytes_of(values)));
      EXPECT_EQ(client.traffic().sent, kPushes * kKeys * (8 + bytes));
      EXPECT_EQ(client.traffic().values_saved, kPushes * kKeys * (4 - bytes));
      client.wait(client.pull(0, keys, memory_of(seen)));
      const double unit = bytes == 1 ? 1.0 / 127 : 1.0 / 32767;
      for (size_t i = 0; i < keys.size(); ++i)
        EXPECT_NEAR(seen[i] / kPushes, values[i], 5 * 0.5 * unit / std::sqrt(kPushes) + 1e-4);
    });
  }
}

std::span<const std::byte> raw(const std::vector<double>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<double> numbers(const RowFilters::Rows& rows) {
  std::vector<double> values(rows.values.size() / sizeof(double));
  std::memcpy(values.data(), rows.values.data(), rows.values.size());
  return values;
}

TEST(RowFilters, InsignificantRowsAreSentLaterAndNotLost) {
  RowFilters filters(DataType::kFloat64, 2);
  filters.add(significance_filter(0.5));
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 0.2);
  std::map<Key, std::array<double, 2>> given, sent;
  for (int push = 0; push < 200; ++push) {
    std::vector<Key> keys;
    std::vector<double> values;
    for (Key key = 0; key < 20; ++key) {
      if (random() % 3 == 0) continue;
      keys.push_back(key);
      for (size_t i = 0; i < 2; ++i) {
        values.push_back(normal(random));
        given[key][i] += values.back();
      }
    }
    const RowFilters::Rows left = filters.apply(keys, raw(values));
    const std::vector<double> rows = numbers(left);
    for (size_t i = 0; i < left.keys.size(); ++i) {
      EXPECT_GT(std::max(std::abs(rows[2 * i]), std::abs(rows[2 * i + 1])), 0.5);
      for (size_t j = 0; j < 2; ++j) sent[left.keys[i]][j] += rows[2 * i + j];
    }
  }
  for (auto& [key, sum] : given)
    for (size_t i = 0; i < 2; ++i) EXPECT_LE(std::abs(sum[i] - sent[key][i]), 0.5 + 1e-9);
  EXPECT_GT(filters.left_out("significance"), 1000);
  EXPECT_EQ(filters.left_out("random_skip"), 0);
}

TEST(RowFilters, RandomSkipsKeepTheMean) {
  constexpr int kPushes = 20000;
  for (double skip : {0.25, 0.8}) {
    RowFilters filters(DataType::kFloat64, 1);
    filters.add(random_skip_filter(skip, /*seed=*/5));
    const std::vector<Key> keys = {3, 9, 11};
    const std::vector<double> values = {1, -2, 0.5};
    std::map<Key, double> sums;
    int64_t rows = 0;
    for (int push = 0; push < kPushes; ++push) {
      const RowFilters::Rows left = filters.apply(keys, raw(values));
      const std::vector<double> sent = numbers(left);
      for (size_t i = 0; i < left.keys.size(); ++i) sums[left.keys[i]] += sent[i];
      rows += static_cast<int64_t>(left.keys.size());
    }
    // Five standard deviations of the mean of values that are v / (1 - p) with probability 1 - p.
    const double bound = 5 * std::sqrt(skip / (1 - skip) / kPushes);
    for (size_t i = 0; i < keys.size(); ++i)
      EXPECT_NEAR(sums[keys[i]] / kPushes, values[i], bound * std::abs(values[i])) << skip;
    EXPECT_EQ(rows + filters.left_out("random_skip"), int64_t{3} * kPushes);
  }
}

TEST(RowFilters, KktLeavesOutWeightsThatStayZero) {
  RowFilters filters(DataType::kFloat64, 2);
  filters.add(kkt_filter({.l1 = 1, .margin = 0.25, .scale = 3}, [](Key key) { return key != 5; }));
  const std::vector<Key> keys = {1, 2, 3, 5};
  // Three times the first value is 0.6, 0.9, -0.9, 0.
  const RowFilters::Rows left = filters.apply(keys, raw({0.2, 9, 0.3, 9, -0.3, 9, 0, 9}));
  EXPECT_EQ(left.keys, (std::vector<Key>{2, 3, 5}));
  EXPECT_EQ(filters.left_out("kkt"), 1);
}

TEST(RowFilters, KktJudgesAllDerivativesOfARow) {
  RowFilters filters(DataType::kFloat64, 2);
  filters.add(kkt_filter({.l1 = 1, .derivatives = 2}, [](Key) { return true; }));
  const std::vector<Key> keys = {1, 2, 3};
  EXPECT_EQ(filters.apply(keys, raw({0.2, 9, 0.3, 0.4, -2, 0})).keys, (std::vector<Key>{1, 3}));
  EXPECT_THROW(kkt_filter({.derivatives = 0}, [](Key) { return true; }), ConfigError);
}

TEST(RowFilters, AProgramMayAddItsOwn) {
  class EvenKeysNegated final : public RowFilter {
   public:
    std::string name() const override { return "even"; }
    bool passes(Key key, std::span<double> row) override {
      for (double& value : row) value = -value;
      return key % 2 == 0;
    }
  };
  RowFilters filters(DataType::kFloat64, 1);
  filters.add(std::make_unique<EvenKeysNegated>());
  filters.add(significance_filter(1.5));
  const std::vector<Key> keys = {1, 2, 4};
  const RowFilters::Rows left = filters.apply(keys, raw({5, 1, 2}));
  EXPECT_EQ(left.keys, std::vector<Key>{4});
  EXPECT_EQ(numbers(left), std::vector<double>{-2});
  EXPECT_EQ(filters.left_out("even"), 1);
  EXPECT_EQ(filters.left_out("significance"), 1);
}

TEST(RowFilters, PassAllRowsUnlessAsked) {
  EXPECT_FALSE(RowFilters(DataType::kFloat64, 1).active());
  EXPECT_THROW(significance_filter(-1), ConfigError);
  EXPECT_THROW(significance_filter(NAN), ConfigError);
  EXPECT_THROW(random_skip_filter(1, 1), ConfigError);
  EXPECT_THROW(random_skip_filter(NAN, 1), ConfigError);
  EXPECT_THROW(kkt_filter({.l1 = -1}, [](Key) { return true; }), ConfigError);
  EXPECT_THROW(kkt_filter({}, {}), ConfigError);
}

}  // namespace
}  // namespace yoke::ps::sparse
