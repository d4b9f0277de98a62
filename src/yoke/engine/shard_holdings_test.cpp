#include "yoke/engine/shard_holdings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A rank of an epoch of `ranks` that has finished `step`: its own shard after that step and the one before,
// and the same of its neighbour.
nlohmann::json survivor(int rank, int ranks, int64_t step, bool copy_arrived = true, int64_t epoch = 0) {
  const int previous = (rank + ranks - 1) % ranks;
  nlohmann::json shards = nlohmann::json::array();
  auto add = [&](int owner, int64_t at) {
    shards.push_back({{"step", at},
                      {"epoch", epoch},
                      {"kind", "rank"},
                      {"count", ranks},
                      {"index", owner},
                      {"own", owner == rank}});
  };
  add(rank, step);
  add(rank, step - 1);
  add(previous, step - 1);
  if (copy_arrived) add(previous, step);
  return {{"shards", shards}, {"finished", step}, {"started", step + 1}};
}

nlohmann::json newcomer() {
  return {{"shards", nlohmann::json::array()}, {"finished", -1}, {"started", -1}};
}

TEST(ShardChoice, ACopyStandsForTheShardOfADeadRank) {
  ShardChoice choice = choose_shards({survivor(0, 3, 7), survivor(2, 3, 7)});  // rank 1 is dead
  EXPECT_EQ(choice.step, 7);
  EXPECT_THAT(choice.giver, ElementsAre(0, 1, 1));
  EXPECT_THAT(choice.rebuilt, ElementsAre(1));
  EXPECT_EQ(choice.repeated(), 1);
}

TEST(ShardChoice, AStepWhoseCopyDidNotArriveIsTakenBack) {
  ShardChoice choice = choose_shards({survivor(0, 3, 7), survivor(2, 3, 7, /*copy_arrived=*/false)});
  EXPECT_EQ(choice.step, 6);
  EXPECT_EQ(choice.newest, 7);
  EXPECT_EQ(choice.repeated(), 1);
}

TEST(ShardChoice, WhoIsBehindDecides) {
  ShardChoice choice = choose_shards({survivor(0, 3, 7), survivor(2, 3, 6)});
  EXPECT_EQ(choice.step, 6);
}

TEST(ShardChoice, NeighboursThatDieTogetherLoseAShard) {
  ShardChoice choice = choose_shards({survivor(0, 4, 7), survivor(3, 4, 7)});  // 1 and 2: nobody has 1
  EXPECT_FALSE(choice.complete());
  EXPECT_THAT(choice.lost, ElementsAre(1));
  EXPECT_EQ(choice.newest, 7);
}

TEST(ShardChoice, RanksThatAreNoNeighboursMayDieTogether) {
  ShardChoice choice = choose_shards({survivor(0, 4, 7), survivor(2, 4, 7)});
  EXPECT_EQ(choice.step, 7);
  EXPECT_THAT(choice.rebuilt, ElementsAre(1, 3));
}

TEST(ShardChoice, RanksThatJoinGiveNothing) {
  ShardChoice choice = choose_shards({survivor(1, 2, 4), newcomer()});
  EXPECT_EQ(choice.step, 4);
  EXPECT_THAT(choice.giver, ElementsAre(0, 0));
  EXPECT_FALSE(choose_shards({newcomer(), newcomer()}).complete());
  EXPECT_THAT(choose_shards({newcomer(), newcomer()}).lost, IsEmpty());
}

// A rank that died while shards were rebuilt: some ranks have those of the next epoch already.
TEST(ShardChoice, OfOneStepTheNewerEpochCounts) {
  nlohmann::json both = survivor(0, 3, 7);
  const nlohmann::json next = survivor(0, 2, 7, true, 1);
  for (const auto& one : next["shards"])
    if (one["step"] == 7) both["shards"].push_back(one);
  ShardChoice choice = choose_shards({both, survivor(1, 3, 7), survivor(2, 3, 7)});
  EXPECT_EQ(choice.epoch, 1);  // rank 0 has both shards of it
  both = survivor(0, 3, 7);
  both["shards"].push_back(
      {{"step", 7}, {"epoch", 1}, {"kind", "rank"}, {"count", 2}, {"index", 0}, {"own", true}});
  choice = choose_shards({both, survivor(1, 3, 7), survivor(2, 3, 7)});
  EXPECT_EQ(choice.epoch, 0);  // a shard of epoch 1 is missing
  EXPECT_THAT(choice.lost, IsEmpty());
}

TEST(ShardChoice, ADescriptionOutOfRangeIsRefused) {
  nlohmann::json bad = survivor(0, 2, 3);
  bad["shards"][0]["index"] = 5;
  EXPECT_THROW(choose_shards(nlohmann::json::array({bad})), CommError);
}

}  // namespace
}  // namespace yoke::engine
