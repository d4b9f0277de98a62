#include "yoke/engine/copy_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace yoke::engine {
namespace {

using ::testing::ElementsAre;

// How many have their copy on their own machine. Every rank keeps one copy.
int at_home(const std::vector<std::string>& machines) {
  const CopyRing ring = copy_ring(machines);
  int same = 0;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    const auto keeper = static_cast<size_t>(ring.keeper_of[rank]);
    EXPECT_EQ(ring.owner_of[keeper], static_cast<int>(rank));
    EXPECT_TRUE(keeper != rank || machines.size() == 1);
    same += machines[keeper] == machines[rank];
  }
  return same;
}

TEST(CopyRing, TheNextRankKeepsTheCopyWhereMachinesDoNotDecide) {
  EXPECT_THAT(copy_ring({"a", "a", "a"}).keeper_of, ElementsAre(1, 2, 0));
  EXPECT_THAT(copy_ring({"a", "b", "c"}).keeper_of, ElementsAre(1, 2, 0));
  EXPECT_THAT(copy_ring({"a"}).keeper_of, ElementsAre(0));
}

TEST(CopyRing, CopiesAreOnAnotherMachineUnlessOneHasMoreThanHalf) {
  EXPECT_EQ(at_home({"a", "a", "b", "b"}), 0);
  EXPECT_EQ(at_home({"a", "b", "a", "b"}), 0);
  EXPECT_EQ(at_home({"a", "a", "b", "c"}), 0);
  EXPECT_EQ(at_home({"a", "a", "a", "b", "b", "c"}), 0);
  EXPECT_EQ(at_home({"a", "b", "b", "b", "c", "c", "d"}), 0);
  EXPECT_EQ(at_home({"a", "a", "b"}), 1);
  EXPECT_EQ(at_home({"a", "a", "a", "a", "b", "c"}), 2);
}

}  // namespace
}  // namespace yoke::engine
