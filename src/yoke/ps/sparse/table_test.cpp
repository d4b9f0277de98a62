#include "yoke/ps/sparse/table.h"

#include <gtest/gtest.h>

#include <random>

namespace yoke::ps::sparse {
namespace {

std::vector<Key> random_keys(std::mt19937_64& bits, Key below) {
  std::vector<Key> keys;
  for (Key key = 0; key < below; ++key)
    if (bits() % 3 == 0) keys.push_back(key);
  return keys;
}

std::vector<float> read(const Table& table, std::span<const Key> keys, std::vector<uint32_t>* rows) {
  std::vector<float> values(keys.size(), -1);
  table.read(keys, reinterpret_cast<std::byte*>(values.data()), rows);
  return values;
}

TEST(Table, RememberedRowsAreThoseOfALookup) {
  Table remembers(TableShape{}, make_rule({.name = "sgd"})),
      looks_up(TableShape{}, make_rule({.name = "sgd"}));
  std::mt19937_64 bits(1);
  std::vector<std::vector<Key>> lists;
  for (int i = 0; i < 5; ++i) lists.push_back(random_keys(bits, 4000));
  std::vector<std::vector<uint32_t>> rows(lists.size());
  for (size_t turn = 0; turn < 25; ++turn) {
    const size_t i = turn * 7 % lists.size();
    const std::vector<float> gradient(lists[i].size(), static_cast<float>(turn));
    const auto* bytes = reinterpret_cast<const std::byte*>(gradient.data());
    remembers.apply({}, lists[i], bytes, &rows[i]);
    looks_up.apply({}, lists[i], bytes);
    for (size_t j = 0; j < lists.size(); ++j)
      EXPECT_EQ(read(remembers, lists[j], &rows[j]), read(looks_up, lists[j], nullptr));
  }
  EXPECT_EQ(remembers.rows(), looks_up.rows());
}

TEST(Table, AKeyThatWasAbsentIsFoundOnceAnotherListHasAddedIt) {
  Table table(TableShape{}, make_rule({}));
  const std::vector<Key> early = {3, 5, 8}, other = {5};
  std::vector<uint32_t> rows;
  EXPECT_EQ(read(table, early, &rows), (std::vector<float>{0, 0, 0}));
  const float one = 1;
  table.apply({}, other, reinterpret_cast<const std::byte*>(&one));
  EXPECT_EQ(read(table, early, &rows), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(table.rows(), 1u);
}

}  // namespace
}  // namespace yoke::ps::sparse
