// A count-min sketch (Cormode, Muthukrishnan 2005) on the servers: a function of the program adds counts to
// the cells of a table, and another namespace beside it holds what a second group of workers needs.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <random>

#include "yoke/ps/sparse/test_tables.h"

namespace yoke::ps::sparse {
namespace {

// Depth hash functions into rows of `width` cells. An estimate is never below the count, and above it by more
// than e / width of all counts with a probability of at most exp(-depth).
struct Sketch {
  int64_t width = 272;
  int64_t depth = 5;

  Key cell(int64_t row, uint64_t item) const {
    uint64_t mixed = (item + 1) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(row) * 0xd1b54a32d192ed03;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
    return static_cast<Key>(row * width) + static_cast<Key>(mixed % static_cast<uint64_t>(width));
  }
  std::vector<Key> cells(uint64_t item) const {
    std::vector<Key> keys;
    for (int64_t row = 0; row < depth; ++row) keys.push_back(cell(row, item));
    return keys;
  }
  // Sends the counts of some items.
  void insert(Client& client, const std::map<uint64_t, double>& counts) const {
    std::map<Key, double> sums;
    for (const auto& [item, count] : counts)
      for (Key key : cells(item)) sums[key] += count;
    std::vector<Key> keys;
    std::vector<double> values;
    for (const auto& [key, value] : sums) {
      keys.push_back(key);
      values.push_back(value);
    }
    client.wait(client.push(0, keys, bytes_of(values)));
  }
  double estimate(Client& client, uint64_t item) const {
    std::vector<double> values(static_cast<size_t>(depth));
    client.wait(client.pull(0, cells(item), memory_of(values)));
    return *std::min_element(values.begin(), values.end());
  }
};

// Adds, and counts the additions of each cell beside it.
std::shared_ptr<const Rule> counting() {
  return make_function(
      [](const RuleStep& step, const RowBlock& rows) {
        for (int64_t i = 0; i < rows.count(); ++i) {
          static_cast<double*>(rows.values)[i] += step.weight * static_cast<const double*>(rows.gradient)[i];
          static_cast<double*>(rows.state[0])[i] += 1;
        }
      },
      1);
}

// Items of a worker, a few of them often.
std::map<uint64_t, double> items_of(int worker, int batch) {
  std::mt19937_64 random(static_cast<uint64_t>(worker * 100 + batch));
  std::map<uint64_t, double> counts;
  for (int i = 0; i < 500; ++i) {
    const double uniform = std::uniform_real_distribution<double>(1e-4, 1)(random);
    counts[static_cast<uint64_t>(1 / (uniform * uniform)) * 0x123456789abcdULL] += 1;
  }
  return counts;
}

TEST(CountMinSketch, NeverUnderestimatesAndSeldomOverestimatesMuch) {
  const Sketch sketch;
  constexpr int kWorkers = 3, kBatches = 20;
  std::map<uint64_t, double> truth;
  double all = 0;
  for (int worker = 0; worker < kWorkers; ++worker)
    for (int batch = 0; batch < kBatches; ++batch)
      for (const auto& [item, count] : items_of(worker, batch)) {
        truth[item] += count;
        all += count;
      }
  TableShop shop{.workers = kWorkers,
                 .servers = 2,
                 .client = {.tables = {{.keys = static_cast<Key>(sketch.width * sketch.depth),
                                        .type = DataType::kFloat64}}}};
  shop.make_rule = [](int) { return counting(); };
  std::atomic<int> ready{0};
  shop.run("shm", [&](Client& client, int worker) {
    for (int batch = 0; batch < kBatches; ++batch) sketch.insert(client, items_of(worker, batch));
    ++ready;
    if (worker != 0) return;
    for (int i = 0; i < 1'000'000 && ready < kWorkers; ++i) sketch.estimate(client, 0);
    ASSERT_EQ(ready, kWorkers);
    int64_t wrong = 0;
    for (const auto& [item, count] : truth) {
      const double estimate = sketch.estimate(client, item);
      ASSERT_GE(estimate, count);
      if (estimate > count + std::exp(1) / static_cast<double>(sketch.width) * all) ++wrong;
    }
    EXPECT_LE(static_cast<double>(wrong), 3 * std::exp(-5) * static_cast<double>(truth.size()));
    EXPECT_GT(truth.size(), 1000u);
  });
  size_t rows = 0;
  for (const auto& one : shop.numbers) rows += one.tables.rows;
  EXPECT_LE(rows, static_cast<size_t>(sketch.width * sketch.depth)) << "memory does not grow with the items";
}

// Workers 0 and 1 fill namespace 0, workers 2 and 3 namespace 1; every group reads what the other has
// written.
TEST(CountMinSketch, NamespacesAreSharedBetweenGroupsOfWorkers) {
  constexpr int kPushes = 30;
  TableShop shop{.workers = 4,
                 .servers = 2,
                 .client = {.tables = {{.width = 2, .type = DataType::kFloat64},
                                       {.width = 3, .type = DataType::kFloat64}}}};
  shop.make_rule = [](int table) { return table == 0 ? make_rule({}) : counting(); };
  std::atomic<int> ready{0};
  shop.run("shm", [&](Client& client, int worker) {
    const std::vector<Key> keys = {5, kMostKeys / 2, kMostKeys - 1};
    const int own = worker / 2, other = 1 - own;
    const auto values = [&](int table) { return 3 * static_cast<size_t>(table == 0 ? 2 : 3); };
    const std::vector<double> ones(values(own), 1);
    for (int i = 0; i < kPushes; ++i) client.wait(client.push(own, keys, bytes_of(ones)));
    ++ready;
    std::vector<double> seen(values(other));
    for (int i = 0; i < 1'000'000 && ready < 4; ++i) client.wait(client.pull(other, keys, memory_of(seen)));
    client.wait(client.pull(other, keys, memory_of(seen)));
    EXPECT_THAT(seen, ::testing::Each(2 * kPushes));
  });
}

}  // namespace
}  // namespace yoke::ps::sparse
