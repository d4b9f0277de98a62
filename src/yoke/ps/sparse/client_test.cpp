#include "yoke/ps/sparse/client.h"

#include <gmock/gmock.h>

#include <atomic>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/test_tables.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps::sparse {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

;

std::vector<Key> every(Key step, size_t count) {
  std::vector<Key> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = i * step;
  return keys;
}

class SparseClient : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, SparseClient, ::testing::Values("shm", "tcp"),
                         [](const auto& instance) { return instance.param; });

TEST_P(SparseClient, ThreadsLoseNothingAndNothingCountsTwice) {
  constexpr int kThreads = 8, kPushes = 200;
  TableShop shop{.servers = 2,
                 .client = {.tables = {{.width = 2, .type = DataType::kFloat64}}, .message_bytes = 1000}};
  int64_t resends = 0;
  shop.run_messengers(GetParam(), [&](comm::Messenger& messenger, const ClientOptions& options, int) {
    ResendingMessenger wire(messenger, {kPushTable});
    Client client(wire, options);
    const std::vector<Key> all = every(kMostKeys / 300, 300), some = every(3 * (kMostKeys / 300), 100);
    const std::vector<double> ones(600, 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kPushes; ++i) {
          const bool whole = (i + t) % 2 == 0;
          auto last =
              client.push(0, whole ? all : some, bytes_of(ones).first((whole ? 600 : 200) * sizeof(double)));
          if (i % 16 == 0 || i + 1 == kPushes) client.wait(last);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    std::vector<double> seen(600);
    for (int i = 0; i < 10'000; ++i) {
      client.wait(client.pull(0, all, memory_of(seen)));
      if (seen[2] == kThreads * kPushes / 2 && seen[0] == kThreads * kPushes) break;
    }
    for (size_t i = 0; i < 600; ++i)
      ASSERT_EQ(seen[i], (i / 2) % 3 == 0 ? kThreads * kPushes : kThreads * kPushes / 2) << i;
    resends = wire.resends;
  });
  EXPECT_GT(resends, 0);
  // All but those whose first message named a list that had not arrived yet.
  const int64_t duplicates = shop.numbers[0].tables.duplicates + shop.numbers[1].tables.duplicates;
  EXPECT_GT(duplicates, resends / 2);
  EXPECT_LE(duplicates, resends);
}

TEST_P(SparseClient, SeveralWorkersShareTables) {
  constexpr int kPushes = 50;
  TableShop shop{.workers = 3, .servers = 3, .client = {.tables = {{.type = DataType::kFloat64}}}};
  std::atomic<int> ready{0};
  shop.run(GetParam(), [&](Client& client, int worker) {
    std::vector<Key> keys(100);
    for (size_t i = 0; i < keys.size(); ++i)
      keys[i] = (i + static_cast<size_t>(worker) * 50) * (kMostKeys / 300);
    std::vector<double> ones(100, 1), seen(100);
    for (int i = 0; i < kPushes; ++i) client.wait(client.push(0, keys, bytes_of(ones)));
    ++ready;
    // Until the others are done.
    for (int i = 0; i < 1'000'000 && ready < 3; ++i) client.wait(client.pull(0, keys, memory_of(seen)));
    client.wait(client.pull(0, keys, memory_of(seen)));
    for (size_t i = 0; i < 100; ++i) {
      const bool shared = (worker > 0 && i < 50) || (worker < 2 && i >= 50);
      EXPECT_EQ(seen[i], shared ? 2 * kPushes : kPushes) << worker << " " << i;
    }
  });
}

TEST_P(SparseClient, AbsentKeysAreZeroAndTheLargestKeyIsAKey) {
  TableShop shop{.servers = 3, .client = {.tables = {{.width = 3}}}};
  shop.run(GetParam(), [&](Client& client, int) {
    const std::vector<Key> keys = {0, 7, (Key{1} << 63) - 1};
    std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9}, seen(9, -1);
    client.wait(client.pull(0, keys, memory_of(seen)));
    EXPECT_THAT(seen, Each(0));
    client.wait(client.push(0, keys, bytes_of(values)));
    client.wait(client.pull(0, keys, memory_of(seen)));
    EXPECT_EQ(seen, values);
    std::vector<float> other(3, -1);
    client.wait(client.pull(0, std::vector<Key>{8}, memory_of(other)));
    EXPECT_THAT(other, Each(0));
    EXPECT_THROW(client.push(0, std::vector<Key>{Key{1} << 63}, bytes_of(other)), ConfigError);
  });
  size_t rows = 0;
  for (const auto& one : shop.numbers) rows += one.tables.rows;
  EXPECT_EQ(rows, 3u) << "reading creates no rows";
}

TEST_P(SparseClient, RangesOfKeys) {
  TableShop shop{.servers = 2, .client = {.tables = {{.type = DataType::kFloat64}}}};
  shop.run(GetParam(), [&](Client& client, int) {
    const std::vector<Key> keys = every(kMostKeys / 1000, 1000);
    std::vector<double> values(1000);
    std::iota(values.begin(), values.end(), 0);
    client.wait(client.push_range(0, keys[100], keys[900], keys, bytes_of(values)));
    Client::Rows rows = client.pull_range(0, keys[50], keys[600]);
    ASSERT_EQ(rows.keys.size(), 500u);
    EXPECT_EQ(rows.keys, std::vector<Key>(keys.begin() + 100, keys.begin() + 600));
    EXPECT_TRUE(std::equal(rows.values.begin(), rows.values.end(),
                           std::as_bytes(std::span(values).subspan(100, 500)).begin()));
    EXPECT_EQ(client.pull_range(0, 0, kMostKeys).keys.size(), 800u);
    EXPECT_TRUE(client.pull_range(0, 5, 5).keys.empty());
  });
}

TEST(SparseClient, BytesAreKeysTimesEightPlusValuesTimesFour) {
  TableShop shop{.servers = 2, .client = {.tables = {{.width = 5}}, .key_cache = false}};
  shop.run("shm", [&](Client& client, int) {
    for (size_t count : {size_t{1}, size_t{100}, size_t{50'000}}) {
      const std::vector<Key> keys = every(kMostKeys / 50'000, count);
      std::vector<float> values(count * 5, 1);
      const Traffic before = client.traffic();
      client.wait(client.push(0, keys, bytes_of(values)));
      client.wait(client.pull(0, keys, memory_of(values)));
      const Traffic after = client.traffic();
      const auto n = static_cast<int64_t>(count);
      EXPECT_EQ(after.sent - before.sent, (n * 8 + n * 5 * 4) + n * 8);
      EXPECT_EQ(after.received - before.received, n * 5 * 4);
    }
  });
  int64_t all = 0;
  for (const auto& one : shop.numbers) all += one.tables.payload_bytes;
  EXPECT_EQ(all, 50'101 * (8 + 20 + 8 + 20));
}

TEST(SparseClient, WrongListsAreRefusedBeforeTheyAreSent) {
  TableShop shop{.client = {.tables = {{.width = 2, .keys = 100}}}};
  shop.run("shm", [&](Client& client, int) {
    std::vector<float> values(4);
    for (const std::vector<Key>& keys : {std::vector<Key>{2, 1}, {1, 1}, {1, 100}})
      EXPECT_THROW(client.push(0, keys, bytes_of(values)), ConfigError);
    EXPECT_THROW(client.push(1, std::vector<Key>{1, 2}, bytes_of(values)), ConfigError);
    EXPECT_THROW(client.push(0, std::vector<Key>{1}, bytes_of(values)), ConfigError);
    client.wait(client.push(0, {}, {}));
  });
}

TEST(SparseClient, TablesMustBeTheSameForAll) {
  TableShop shop{.workers = 1, .client = {.tables = {{.width = 2}}}};
  shop.run_messengers("shm", [&](comm::Messenger& messenger, const ClientOptions& options, int) {
    Client first(messenger, options);
    ClientOptions other = options;
    other.tables[0].width = 3;
    other.says_goodbye = false;
    try {
      Client second(messenger, other);
      FAIL() << "the width changed";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("worker 0 opens table 0 with 3 values per key"));
    }
  });
}

}  // namespace
}  // namespace yoke::ps::sparse
