#include "yoke/data/formats/text/pair_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "yoke/base/random.h"

namespace yoke::data {
namespace {

// As the paper says: the pair of the lowest rank, leftmost first, again and again.
std::vector<TokenId> merged_slowly(const std::vector<Merge>& merges, std::vector<TokenId> ids) {
  for (;;) {
    size_t rank = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (size_t m = 0; m < rank; ++m)
        if (merges[m].left == ids[i] && merges[m].right == ids[i + 1]) {
          rank = m;
          place = i;
        }
    if (rank == merges.size()) return ids;
    ids[place] = merges[rank].merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(PairTable, MergesAsTheSlowWayDoesWhateverTheLength) {
  Random random(7);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<Merge> merges;
    for (TokenId next = 4; next < 24; ++next) {
      const auto below = static_cast<uint64_t>(next);
      merges.push_back(
          {static_cast<TokenId>(random.below(below)), static_cast<TokenId>(random.below(below)), next});
      for (size_t i = 0; i + 1 < merges.size(); ++i)
        if (merges[i].left == merges.back().left && merges[i].right == merges.back().right) {
          merges.pop_back();
          break;
        }
    }
    std::vector<TokenId> ids(1 + random.below(200));
    for (TokenId& id : ids) id = static_cast<TokenId>(random.below(4));
    std::vector<TokenId> fast = ids;
    merge_pairs(PairTable(merges), fast);
    ASSERT_EQ(fast, merged_slowly(merges, ids)) << trial;
  }
}

TEST(PairTable, OfEqualPairsTheLastCounts) {
  const PairTable pairs({{1, 2, 3}, {1, 2, 4}});
  EXPECT_EQ(pairs.find(1, 2).merged, 4);
  EXPECT_EQ(pairs.find(1, 2).rank, 1u);
  EXPECT_EQ(pairs.find(2, 1).rank, PairTable::kNone);
}

TEST(PairTable, MergesAMillionTokensInTimeThatGrowsSlowly) {
  std::vector<Merge> merges;
  for (TokenId level = 0; level < 20; ++level) merges.push_back({level, level, level + 1});
  std::vector<TokenId> ids(size_t{1} << 20, 0);
  merge_pairs(PairTable(merges), ids);  // the square of its length would take minutes
  EXPECT_EQ(ids, std::vector<TokenId>{20});
}

}  // namespace
}  // namespace yoke::data
