#include "yoke/ps/succession.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/ps/flight.h"

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

using Machines = std::vector<std::string>;

// Homes whose first copy is on the machine of their server, and the most copies that a server holds.
std::pair<int, int> at_home_and_most(const Machines& machines, int replicas) {
  const auto size = static_cast<int>(machines.size());
  Succession servers(size, replicas, 0, machines);
  int at_home = 0;
  std::vector<int> copies(machines.size(), 0);
  for (int home = 0; home < size; ++home) {
    EXPECT_EQ(servers.owner(home), home) << "every server serves its own home";
    at_home += machines[static_cast<size_t>(home)] == machines[static_cast<size_t>(servers.next(home, home))];
    for (int server = 0; server < size; ++server)
      copies[static_cast<size_t>(server)] += server != home && servers.holds(home, server);
  }
  return {at_home, *std::max_element(copies.begin(), copies.end())};
}

TEST(PsSuccession, TheFirstCopyIsOnAnotherMachineAndAllServersHoldAsMany) {
  for (const Machines& machines :
       {Machines{"a", "a", "b", "b"}, Machines{"a", "b", "a", "b"}, Machines{"a", "a", "b", "b", "c", "c"},
        Machines{"a", "a", "b", "c"}, Machines{"a", "b", "c"}, Machines{"a", "b", "b", "b", "c", "c", "d"}})
    for (int replicas = 1; replicas < 3; ++replicas)
      EXPECT_EQ(at_home_and_most(machines, replicas), std::pair(0, replicas));
  EXPECT_EQ(at_home_and_most({"a", "a", "b"}, 1), std::pair(1, 1)) << "more than half are on one machine";
  EXPECT_EQ(at_home_and_most({"a", "a", "a"}, 1), std::pair(3, 1));
}

TEST(PsSuccession, AMachineWithTwoServersMayBeLost) {
  Succession servers(4, 1, 0, {"a", "a", "b", "b"});
  for (int home : {0, 1}) EXPECT_TRUE(servers.held_from_start(home, servers.next(home, home)));
  servers.lose(0);
  servers.lose(1);
  EXPECT_EQ(servers.owner(0), 2);
  EXPECT_EQ(servers.owner(1), 3);
  EXPECT_TRUE(servers.held_from_start(0, 2) && servers.held_from_start(1, 3)) << "with what they had before";
  EXPECT_EQ(servers.next(0, 2), 3) << "the new copy is on the machine that is left";
}

TEST(PsSuccession, ServersThatJoinAreLastInTheOrder) {
  Succession servers(8, 1, 4, {"a", "a", "b", "b"});
  EXPECT_EQ(servers.owner(5), 1);
  EXPECT_EQ(servers.next(5, 1), 3);
  servers.add(4);
  EXPECT_EQ(servers.next(5, 1), 3);
}

TEST(PsSuccession, MoreCopiesThanOtherServersAreRefused) {
  EXPECT_THROW(Succession(1, 1), ConfigError);
  EXPECT_THROW(Succession(3, 3), ConfigError);
  EXPECT_THROW(Succession(3, -1), ConfigError);
  EXPECT_NO_THROW(Succession(3, 2));
}

TEST(PsSuccession, ServersOfTheStartShareAllHomes) {
  Succession servers(8, 0, 2);
  EXPECT_THAT(servers.homes_of(0), ::testing::ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(servers.homes_of(1), ::testing::ElementsAre(1, 3, 5, 7));
  EXPECT_TRUE(servers.is_lost(2) && servers.is_absent(2));
  EXPECT_EQ(servers.living(), 2);
  EXPECT_EQ(servers.lost(), 0);
  EXPECT_THROW(Succession(8, 2, 2), ConfigError);
}

TEST(PsSuccession, AServerThatJoinsServesWhatIsMovedToIt) {
  for (int replicas : {0, 1}) {
    Succession servers(4, replicas, 2);
    EXPECT_TRUE(servers.add(2));
    EXPECT_FALSE(servers.add(2));
    EXPECT_EQ(servers.owner(3), 1) << "nothing moves by itself";
    const int last = replicas == 0 ? 1 : 0;
    EXPECT_EQ(servers.next(3, last), Succession::kNobody);
    servers.prepare(3, 2);
    EXPECT_EQ(servers.next(3, last), 2) << "it gets a copy at the end of the chain";
    EXPECT_TRUE(servers.holds(3, 2));
    EXPECT_FALSE(servers.holds(1, 2));
    const Succession::Move move{3, 1, 2, 1};
    EXPECT_TRUE(servers.apply(move));
    EXPECT_FALSE(servers.apply(move)) << "told twice";
    EXPECT_EQ(servers.owner(3), 2);
    EXPECT_EQ(servers.next(3, 2), replicas == 0 ? Succession::kNobody : 0);
    EXPECT_EQ(servers.next(3, last), Succession::kNobody);
    EXPECT_FALSE(servers.holds(3, 1)) << "it has handed the ranges over";
    EXPECT_THAT(servers.homes_of(2), ::testing::ElementsAre(3));
  }
}

TEST(PsSuccession, ATargetThatIsLostLeavesTheOwner) {
  Succession servers(4, 0, 2);
  servers.add(2);
  servers.prepare(3, 2);
  EXPECT_TRUE(servers.lose(2));
  EXPECT_EQ(servers.target(3), Succession::kNobody);
  EXPECT_EQ(servers.owner(3), 1);
  EXPECT_FALSE(servers.add(2)) << "a lost server stays lost";
}

TEST(PsSuccession, WhatIsLeftOfTheCopiesIsSaidForEachNumberOfServers) {
  using ::testing::HasSubstr;
  Succession servers(4, 2);
  servers.lose(3);
  EXPECT_THAT(redundancy_left(servers, true), HasSubstr("until copies are made anew"));
  EXPECT_THAT(redundancy_left(servers, false), HasSubstr("training has ended"));
  servers.lose(0);
  EXPECT_THAT(redundancy_left(servers, true), HasSubstr("with 1 other server there is 1 of 2 copies"));
  servers.lose(2);
  for (bool copies : {true, false})
    EXPECT_THAT(redundancy_left(servers, copies), HasSubstr("no other server is left"));
  Succession growing(8, 1, /*at_start=*/2);
  growing.add(2);
  growing.lose(2);  // not one whose number is that of a home of the start
  EXPECT_THAT(redundancy_left(growing, true), HasSubstr("until copies are made anew"));
}

}  // namespace
}  // namespace yoke::ps
