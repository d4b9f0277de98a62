#include "yoke/parallel/sync/sharded/shards.h"

#include <gtest/gtest.h>

#include "yoke/base/random.h"

namespace yoke::parallel {
namespace {

TEST(Shards, EveryElementHasOneOwner) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> elements;
    std::vector<std::vector<int64_t>> plan;
    for (int64_t i = 0; i < 1 + static_cast<int64_t>(random.next() % 9); ++i) {
      elements.push_back(1 + static_cast<int64_t>(random.next() % 50));
      if (plan.empty() || random.next() % 3 == 0) plan.emplace_back();
      plan.back().push_back(i);
    }
    int ranks = 1 + static_cast<int>(random.next() % 7);
    std::vector<std::vector<int>> owners;
    for (int64_t count : elements) owners.emplace_back(count, 0);
    for (int rank = 0; rank < ranks; ++rank)
      for (const Piece& piece : pieces_of_rank(plan, elements, rank, ranks))
        for (int64_t e = piece.begin; e < piece.end; ++e) ++owners[piece.parameter][static_cast<size_t>(e)];
    for (const auto& one : owners)
      for (int count : one) ASSERT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace yoke::parallel
