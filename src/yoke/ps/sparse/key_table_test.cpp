#include "yoke/ps/sparse/key_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

namespace yoke::ps::sparse {
namespace {

TEST(KeyTable, FindsWhatWasAddedAndNothingElse) {
  KeyTable table(DataType::kFloat32, 1, 1);
  std::mt19937_64 random(1);
  std::map<Key, uint32_t> expected;
  for (int round = 0; round < 50; ++round) {
    std::vector<Key> keys;
    for (int i = 0; i < 100; ++i) keys.push_back(random() % (round % 2 == 0 ? 2000 : kMostKeys));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::vector<uint32_t> before(keys.size()), rows(keys.size());
    table.find(keys, before.data());
    table.find_or_add(keys, rows.data());
    for (size_t i = 0; i < keys.size(); ++i) {
      auto known = expected.find(keys[i]);
      EXPECT_EQ(before[i], known == expected.end() ? KeyTable::kAbsent : known->second);
      if (known != expected.end()) {
        EXPECT_EQ(rows[i], known->second);
      }
      expected[keys[i]] = rows[i];
      EXPECT_EQ(table.key(rows[i]), keys[i]);
    }
  }
  EXPECT_EQ(table.size(), expected.size());
}

TEST(KeyTable, OrdersRowsByKeyAsTheyCome) {
  KeyTable table(DataType::kFloat64, 2, 1);
  std::vector<uint32_t> rows(3);
  table.find_or_add(std::vector<Key>{5, 70, 900}, rows.data());
  EXPECT_EQ(table.in_order().size(), 3u);
  table.find_or_add(std::vector<Key>{1, 70, kMostKeys - 1}, rows.data());
  std::vector<Key> keys;
  for (uint32_t row : table.in_order()) keys.push_back(table.key(row));
  EXPECT_EQ(keys, (std::vector<Key>{1, 5, 70, 900, kMostKeys - 1}));
}

TEST(KeyTable, FindsRunsOfRowsThatLieTogether) {
  KeyTable table(DataType::kFloat32, 1, 1);
  std::vector<Key> keys = {3, 9, 12, 40};
  std::vector<uint32_t> rows(4);
  EXPECT_FALSE(table.find_run(keys));
  table.find_or_add(keys, rows.data());
  EXPECT_EQ(table.find_run(keys), 0u);
  EXPECT_FALSE(table.find_run(std::vector<Key>{3, 9, 13}));
  EXPECT_FALSE(table.find_run(std::vector<Key>{40, 41}));
}

TEST(KeyTable, MemoryGrowsWithKeysSeen) {
  KeyTable table(DataType::kFloat32, 4, 2);
  const size_t empty = table.bytes_held();
  EXPECT_LT(empty, 4096u);
  std::vector<Key> keys;
  for (Key i = 0; i < 10'000; ++i) keys.push_back(i * (kMostKeys / 10'000));
  std::vector<uint32_t> rows(keys.size());
  table.find_or_add(keys, rows.data());
  const size_t each = 2 * 4 * sizeof(float) + sizeof(Key) + 4 * sizeof(uint32_t);
  EXPECT_LT(table.bytes_held(), 2 * keys.size() * each);
  const size_t held = table.bytes_held();
  for (int i = 0; i < 10; ++i) table.find_or_add(keys, rows.data());
  EXPECT_EQ(table.bytes_held(), held);
}

}  // namespace
}  // namespace yoke::ps::sparse
