#include "cli/ring_on_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/cluster/topology/presets.h"

namespace yoke::cli {
namespace {

using ::testing::Each;

TEST(RingOnTopology, EveryStepAddsOrPassesOnOnePartOfEachRank) {
  const report::RingSteps all = ring_steps(cluster::preset("pcie4"));
  ASSERT_EQ(all.ranks.size(), 4U);
  ASSERT_EQ(all.steps.size(), 7U);  // the start and 2 (4 - 1)
  EXPECT_THAT(all.steps[0].sums, Each(Each(1)));
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_FALSE(all.steps[i].gathers);
    for (size_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(all.steps[i].sums[rank][static_cast<size_t>(all.steps[i].arrived[rank])],
                static_cast<int>(i) + 1);
  }
  EXPECT_TRUE(all.steps[4].gathers);
  EXPECT_THAT(all.steps[6].sums, Each(Each(4)));
}

TEST(RingOnTopology, ARingCrossesBetweenTheSocketsOnceInEachDirection) {
  const report::RingSteps all = ring_steps(cluster::preset("pcie8"));
  ASSERT_EQ(all.steps.size(), 15U);
  for (size_t link = 0; link < all.machine.links.size(); ++link)
    EXPECT_EQ(all.steps[1].messages[link], 1) << all.machine.links[link].title;
}

TEST(RingOnTopology, OfManyStepsSomeAreDrawn) {
  const report::RingSteps all = ring_steps(cluster::preset("p2.16xlarge"));
  ASSERT_EQ(all.steps.size(), 15U);
  EXPECT_EQ(all.steps[1].title, "step 1 of 30: add");
  EXPECT_EQ(all.steps[7].title, "step 15 of 30: add");
  EXPECT_EQ(all.steps[8].title, "step 16 of 30: pass on");
  EXPECT_EQ(all.steps[14].title, "step 30 of 30: pass on");
  EXPECT_THAT(all.steps[14].sums, Each(Each(16)));
}

TEST(RingOnTopology, RefusesASingleDevice) {
  cluster::Topology lone{.name = "lone", .machines = {"m"}, .devices = {{"gpu0", "m"}}, .links = {}};
  EXPECT_THROW(ring_steps(lone), ConfigError);
}

}  // namespace
}  // namespace yoke::cli
