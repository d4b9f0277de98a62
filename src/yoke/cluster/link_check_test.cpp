#include "yoke/cluster/link_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/net/connection.h"

namespace yoke::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Ranks by machine: {"a", "b", "b"} are three ranks on two machines.
std::vector<Member> members_on(const std::vector<std::string>& machines) {
  std::vector<Member> members;
  for (const std::string& machine : machines) {
    members.push_back({static_cast<int>(members.size()), machine, machine, 1, "10.0.0.1:1", ""});
  }
  return members;
}

TEST(LinkCheck, OfTwoRanksTheHigherOneLeaves) {
  EXPECT_THAT(who_leaves(members_on({"a", "b", "c"}), {{1, 2}}), ElementsAre(2));
  EXPECT_THAT(who_leaves(members_on({"a", "b", "c"}), {{0, 1}}), ElementsAre(1));
}

TEST(LinkCheck, ARankThatMissesSeveralLeavesAlone) {
  EXPECT_THAT(who_leaves(members_on({"a", "b", "c", "d"}), {{0, 1}, {0, 2}, {0, 3}}), ElementsAre(0));
  EXPECT_THAT(who_leaves(members_on({"a", "b", "c", "d"}), {{0, 2}, {1, 2}}), ElementsAre(2));
}

TEST(LinkCheck, ALinkStandsForAllRanksOfItsMachines) {
  EXPECT_THAT(who_leaves(members_on({"a", "a", "b", "b"}), {{0, 2}}), ElementsAre(2, 3));
  EXPECT_THAT(who_leaves(members_on({"a", "b", "b", "b"}), {{0, 1}}), ElementsAre(0));
  EXPECT_THAT(who_leaves(members_on({"a", "b", "a"}), {{1, 2}}), ElementsAre(1));
}

TEST(LinkCheck, SeparateCutsEachCostTheFewest) {
  EXPECT_THAT(who_leaves(members_on({"a", "b", "c", "d", "e"}), {{0, 1}, {2, 3}}), ElementsAre(1, 3));
  EXPECT_THAT(who_leaves(members_on({"a", "b", "c"}), {{0, 1}, {1, 2}, {0, 2}}), ElementsAre(1, 2));
  EXPECT_THAT(who_leaves(members_on({"a", "b"}), {}), IsEmpty());
}

TEST(LinkCheck, ManyMachinesAreCoveredToo) {
  std::vector<std::string> machines;
  std::vector<CutLink> cut;
  for (int rank = 0; rank < 40; ++rank) machines.push_back(std::to_string(rank));
  for (int rank = 0; rank < 40; ++rank)
    if (rank != 7) cut.emplace_back(std::min(rank, 7), std::max(rank, 7));
  EXPECT_THAT(who_leaves(members_on(machines), cut), ElementsAre(7));
}

TEST(LinkCheck, FirstRanksOfMachinesCallThoseBehindThem) {
  net::JobTicket ticket;
  net::Acceptor acceptor(net::parse_address("127.0.0.1:0"), ticket);
  std::vector<Member> members = members_on({"a", "b", "b", "c"});
  members[0].address = members[1].address = acceptor.address().text();
  members[2].address = members[3].address = "no-such-host.invalid:1";
  EXPECT_THAT(silent_ranks(members, 0), ElementsAre(3)) << "rank 2 is not called";
  EXPECT_THAT(silent_ranks(members, 1), ElementsAre(3));
  EXPECT_THAT(silent_ranks(members, 2), IsEmpty());
  EXPECT_THAT(silent_ranks(members, 3), IsEmpty());
  EXPECT_THAT(describe(members, {{1, 3}}), HasSubstr("rank 1 on b (127.0.0.1:"));
}

}  // namespace
}  // namespace yoke::cluster
