#include "yoke/engine/shard_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ShardPart run(const std::string& name, int64_t begin, int64_t end, bool optimizer = false,
              torch::ScalarType type = torch::kFloat32) {
  ShardPart part;
  part.name = name;
  part.optimizer = optimizer;
  part.type = type;
  part.shape = {10};
  part.begin = begin;
  part.end = end;
  return part;
}

std::vector<std::string> texts(const std::vector<Move>& moves) {
  std::vector<std::string> list;
  for (const Move& one : moves)
    list.push_back(fmt::format("{}->{} {}:{}", one.from, one.to, one.begin, one.end));
  return list;
}

TEST(ShardMoves, ElementsTravelFromWhoHasThemToWhoNeedsThem) {
  // Cut for three ranks; rank 1 of two gives the third shard as well.
  std::vector<std::vector<ShardOutline>> offers = {{{{run("w", 0, 4)}}},
                                                   {{{run("w", 4, 8)}}, {{run("w", 8, 10)}}}};
  std::vector<ShardOutline> wants = {{{run("w", 0, 5)}}, {{run("w", 5, 10)}}};
  EXPECT_THAT(texts(plan_moves(offers, wants)), ElementsAre("0->0 0:4", "1->0 4:5", "1->1 5:8", "1->1 8:10"));
}

TEST(ShardMoves, AWholeParameterComesFromAllShards) {
  std::vector<std::vector<ShardOutline>> offers = {{{{run("w", 0, 5)}}}, {{{run("w", 5, 10)}}}, {}};
  std::vector<ShardOutline> wants = {{{run("w", 0, 10)}}, {{run("w", 0, 10)}}, {{run("w", 0, 10)}}};
  EXPECT_EQ(plan_moves(offers, wants).size(), 6);
}

TEST(ShardMoves, OfEqualOffersARankTakesItsOwn) {
  std::vector<std::vector<ShardOutline>> offers = {{{{run("w", 0, 10)}}}, {{{run("w", 0, 6)}}}};
  std::vector<ShardOutline> wants = {{{run("w", 2, 10)}}, {{run("w", 0, 10)}}};
  EXPECT_THAT(texts(plan_moves(offers, wants)), ElementsAre("0->0 2:10", "1->1 0:6", "0->1 6:10"));
}

TEST(ShardMoves, MomentsAndParametersOfOneNameAreApart) {
  std::vector<std::vector<ShardOutline>> offers = {{{{run("w", 0, 10), run("w", 0, 10, true)}}}};
  std::vector<ShardOutline> wants = {{{run("w", 0, 10, true)}}};
  EXPECT_EQ(plan_moves(offers, wants).at(0).part, 1);
}

TEST(ShardMoves, MastersAndWideParametersStandForEachOther) {
  std::vector<std::vector<ShardOutline>> wide = {{{{run("w", 0, 10)}}}};
  std::vector<std::vector<ShardOutline>> narrow = {
      {{{run("w", 0, 10, false, torch::kBFloat16), run("master/w", 0, 10, true)}}}};
  EXPECT_EQ(plan_moves(wide, {{{run("master/w", 0, 10, true)}}}).size(), 1);
  EXPECT_EQ(plan_moves(narrow, {{{run("w", 0, 10)}}}).at(0).part, 1);
}

TEST(ShardMoves, MissingElementsAreNamed) {
  std::vector<std::vector<ShardOutline>> offers = {{{{run("w", 0, 4)}}}};
  try {
    plan_moves(offers, {{{run("w", 0, 10)}}});
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("4 of the 10 elements of 'w'"));
  }
}

}  // namespace
}  // namespace yoke::engine
