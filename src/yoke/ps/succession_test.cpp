#include "yoke/ps/succession.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::ps {
namespace {

TEST(PsSuccession, TheFirstLivingServerOfTheChainServes) {
  Succession servers(4, 2);
  EXPECT_EQ(servers.owner(3), 3);
  EXPECT_EQ(servers.next(3, 3), 0);
  EXPECT_EQ(servers.next(3, 0), 1);
  EXPECT_EQ(servers.next(3, 1), Succession::kNobody);
  EXPECT_TRUE(servers.lose(3));
  EXPECT_FALSE(servers.lose(3));
  EXPECT_EQ(servers.owner(3), 0);
  EXPECT_EQ(servers.copies(3), 2) << "another server takes its place in the chain";
  EXPECT_EQ(servers.next(2, 2), 0) << "the lost one is skipped";
  servers.lose(0);
  EXPECT_EQ(servers.owner(3), 1);
  EXPECT_EQ(servers.owner(0), 1);
  EXPECT_EQ(servers.copies(3), 1) << "there are not more servers";
  EXPECT_THAT(servers.lost_before_owner(3), ::testing::ElementsAre(3, 0));
  EXPECT_EQ(servers.orphan(), Succession::kNobody);
  servers.lose(1);
  servers.lose(2);
  EXPECT_EQ(servers.owner(3), Succession::kNobody);
  EXPECT_EQ(servers.orphan(), 0);
  EXPECT_EQ(servers.lost(), 4);
}

TEST(PsSuccession, ALostServerIsReplacedAtTheEndOfTheChain) {
  Succession servers(5, 1);
  EXPECT_EQ(servers.next(0, 0), 1);
  EXPECT_TRUE(servers.held_from_start(0, 1));
  servers.lose(1);
  EXPECT_EQ(servers.next(0, 0), 2);
  EXPECT_FALSE(servers.held_from_start(0, 2));
  EXPECT_EQ(servers.next(1, 2), 3) << "the new owner of the lost one's ranges";
  EXPECT_TRUE(servers.holds(1, 3));
  EXPECT_FALSE(servers.holds(1, 4));
  EXPECT_EQ(servers.next(3, 3), 4) << "of no concern to others";
}

TEST(PsSuccession, WithoutReplicasEveryServerIsAlone) {
  Succession servers(3, 0);
  EXPECT_EQ(servers.next(1, 1), Succession::kNobody);
  EXPECT_TRUE(servers.holds(1, 1));
  EXPECT_FALSE(servers.holds(1, 2));
  servers.lose(1);
  EXPECT_EQ(servers.orphan(), 1);
}

TEST(PsSuccession, AChainHoldsItsFollowersAroundTheEnd) {
  Succession servers(3, 1);
  EXPECT_TRUE(servers.holds(2, 0));
  EXPECT_FALSE(servers.holds(2, 1));
  EXPECT_FALSE(servers.holds(0, 2));
}

TEST(PsSuccession, MoreCopiesThanOtherServersAreRefused) {
  EXPECT_THROW(Succession(1, 1), ConfigError);
  EXPECT_THROW(Succession(3, 3), ConfigError);
  EXPECT_THROW(Succession(3, -1), ConfigError);
  EXPECT_NO_THROW(Succession(3, 2));
}

}  // namespace
}  // namespace yoke::ps
