#include "yoke/collab/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "yoke/base/clock.h"
#include "yoke/collab/group_part.h"
#include "yoke/collab/meeting_fields.h"
#include "yoke/collab/test_group.h"

namespace yoke::collab {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TestGroup;

double largest_difference(const std::vector<float>& a, const std::vector<double>& b, size_t first,
                          size_t count) {
  double largest = 0;
  for (size_t i = first; i < first + count; ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(Group, UnequalPartsAndWeightsGiveTheWeightedMeanToAll) {
  TestGroup group({70'001, 30'000, 0, 199'999}, {5, 7, 20, 1});
  for (const GroupResult& result : group.run()) {
    EXPECT_TRUE(result.complete);
    EXPECT_THAT(result.senders, IsEmpty());
  }
  const std::vector<double> expected = group.expected({0, 1, 2, 3});
  EXPECT_LT(largest_difference(group.values_[0], expected, 0, expected.size()), 1e-6);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(group.values_[i], group.values_[0]) << i;  // bit by bit
}

TEST(Group, ConnectionsServeLaterRoundsToo) {
  TestGroup group({1000, 0, 3000}, {1, 2, 0}, {false, true, false});
  std::vector<KeptLinks> links(3);
  for (int round = 0; round < 5; ++round) {
    group.values_ = group.inputs_;
    if (round == 3) links[0] = {};  // its ends are closed: others notice, and dial
    for (const GroupResult& result : group.run({0, 1, 2}, &links)) {
      EXPECT_TRUE(result.complete) << round;
      EXPECT_TRUE(result.senders.empty()) << round;
    }
    EXPECT_LT(largest_difference(group.values_[1], group.expected({0, 1}), 0, 4000), 1e-6) << round;
    EXPECT_EQ(group.values_[0], group.values_[2]);
  }
  EXPECT_NE(links[1].take_dialed(0, group.plan_.members[0].address), nullptr);
  EXPECT_NE(links[0].take_accepted(1), nullptr);
}

TEST(Group, PeersWithoutIncomingConnectionsWorkThroughOthers) {
  TestGroup group({50'000, 0, 50'000, 0}, {1, 2, 3, 4}, {false, true, false, true});
  for (const GroupResult& result : group.run()) EXPECT_TRUE(result.complete);
  const std::vector<double> expected = group.expected({0, 1, 2, 3});
  for (size_t i = 0; i < 4; ++i)
    EXPECT_LT(largest_difference(group.values_[i], expected, 0, expected.size()), 1e-6) << i;
}

TEST(Group, APeerWithoutSamplesOnlyReceives) {
  TestGroup group({1000, 1000, 1000}, {1, 0, 3});
  for (float& value : group.values_[1]) value = std::numeric_limits<float>::quiet_NaN();
  for (const GroupResult& result : group.run()) EXPECT_TRUE(result.complete);
  EXPECT_LT(largest_difference(group.values_[1], group.expected({0, 2}), 0, 3000), 1e-6);
}

TEST(Group, OnePeerKeepsItsValues) {
  TestGroup group({1000}, {3});
  EXPECT_TRUE(group.run()[0].complete);
  EXPECT_LT(largest_difference(group.values_[0], group.expected({0}), 0, 1000), 1e-7);
}

TEST(Group, AnAbsentSenderIsLeftOutAndNamed) {
  TestGroup group({2000, 2000, 0}, {1, 1, 5});
  group.options_.stall = 0.3;
  std::vector<GroupResult> results = group.run({0, 1});
  const std::vector<double> expected = group.expected({0, 1});
  for (size_t i : {0, 1}) {
    EXPECT_TRUE(results[i].complete);
    ASSERT_THAT(results[i].senders, SizeIs(1));
    EXPECT_EQ(results[i].senders[0].peer, 2);
    EXPECT_THAT(results[i].senders[0].why, HasSubstr("stalled"));
    EXPECT_LT(largest_difference(group.values_[i], expected, 0, 4000), 1e-6);
  }
}

TEST(Group, APartWithoutItsReducerStaysAsItIsAndIsNamed) {
  TestGroup group({2000, 2000, 1000}, {1, 1, 1});
  group.options_.stall = 0.3;
  group.acceptors_[2].reset();
  std::vector<GroupResult> results = group.run({0, 1});
  const std::vector<double> expected = group.expected({0, 1});
  for (size_t i : {0, 1}) {
    EXPECT_FALSE(results[i].complete);
    ASSERT_THAT(results[i].reducers, SizeIs(1));
    EXPECT_EQ(results[i].reducers[0].peer, 2);
    EXPECT_THAT(results[i].reducers[0].why, HasSubstr("could not be reached"));
    EXPECT_LT(largest_difference(group.values_[i], expected, 0, 4000), 1e-6);
    EXPECT_TRUE(
        std::equal(group.values_[i].begin() + 4000, group.values_[i].end(), group.inputs_[i].begin() + 4000));
  }
}

TEST(Group, ValuesThatAreNotFiniteBanTheirSender) {
  TestGroup group({2000, 2000, 0}, {1, 1, 5});
  group.values_[2][100] = std::numeric_limits<float>::infinity();
  std::vector<GroupResult> results = group.run();
  ASSERT_THAT(results[0].senders, SizeIs(1));
  EXPECT_THAT(results[0].senders[0].why, HasSubstr("not finite"));
  EXPECT_LT(largest_difference(group.values_[0], group.expected({0, 1}), 0, 2000), 1e-6);
}

TEST(Group, AWrongTokenIsNotAccepted) {
  TestGroup group({2000, 2000}, {1, 1});
  group.options_.stall = 0.3;
  GroupPlan forged = group.plan_of(1);
  forged.members[0].send_token = 77;
  std::jthread stranger([&] {
    average_in_group(forged, group.values_[1], group.acceptors_[1].get(), group.job_, group.options_);
  });
  GroupResult result = average_in_group(group.plan_of(0), group.values_[0], group.acceptors_[0].get(),
                                        group.job_, group.options_);
  ASSERT_THAT(result.senders, SizeIs(1));
  EXPECT_LT(largest_difference(group.values_[0], group.expected({0}), 0, 2000), 1e-6);
}

TEST(Group, RobustMeansIgnoreALiar) {
  for (Robust robust : {Robust::kMedian, Robust::kCenteredClip, Robust::kKrum}) {
    TestGroup group({1500, 1500, 1500, 500}, {1, 1, 1, 1});
    group.plan_.robust = robust;
    group.plan_.suspects = 1;
    for (size_t i = 0; i < 4; ++i)
      for (size_t k = 0; k < 5000; ++k)
        group.values_[i][k] = i == 3 ? -100.0f : 1 + 0.01f * group.inputs_[i][k];
    std::vector<GroupResult> results = group.run();
    for (float value : group.values_[0]) EXPECT_NEAR(value, 1, 0.2) << to_string(robust);
    EXPECT_EQ(group.values_[1], group.values_[0]);
    ASSERT_THAT(results[0].outliers, SizeIs(4));
    EXPECT_GT(results[0].outliers[3].score, 10);
  }
}

TEST(GroupPart, ChunksGivenBeforeASenderVanishedAreUsed) {
  GroupPlan plan;
  plan.members = {{.peer = 0, .weight = 1, .count = 6}, {.peer = 1, .weight = 1}};
  std::vector<float> own(6, 1.0f);
  GroupMemory memory;
  GroupPart part(plan, own, 2, memory);
  EXPECT_TRUE(part.combine_ready().empty());
  for (float& value : part.inbox(1, 0)) value = 3;
  part.arrived(1);
  part.combine_ready();
  EXPECT_EQ(part.combined(), 1u);
  part.give_up(1);
  part.combine_ready();
  EXPECT_EQ(part.combined(), 3u);
  EXPECT_THAT(part.whole_result(), ::testing::ElementsAre(2, 2, 1, 1, 1, 1));
}

TEST(GroupPart, ValuesOfAnEarlierRoundAreNotUsed) {
  GroupPlan plan;
  plan.members = {{.peer = 0, .weight = 1, .count = 6}, {.peer = 1, .weight = 1}};
  std::vector<float> own(6, 1.0f);
  GroupMemory memory;
  GroupPart first(plan, own, 6, memory);
  const float* place = first.inbox(1, 0).data();
  for (float& value : first.inbox(1, 0)) value = 3;
  first.arrived(1);
  first.combine_ready();
  EXPECT_THAT(first.whole_result(), ::testing::Each(2));
  GroupPart second(plan, own, 6, memory);
  EXPECT_EQ(second.inbox(1, 0).data(), place);
  second.give_up(1);
  second.combine_ready();
  EXPECT_THAT(second.whole_result(), ::testing::Each(1));
}

TEST(GroupPlan, MessagesThatDoNotAddUpAreRefused) {
  const auto message = [] {
    nlohmann::json member = {{"peer", 0},  {"name", "a"}, {"address", "h:1"}, {"weight", 1},
                             {"begin", 0}, {"count", 10}, {"send_token", 1},  {"receive_token", 2}};
    return nlohmann::json({{"epoch", 0},
                           {"phase", 0},
                           {"attempt", 0},
                           {"self", 0},
                           {"elements", 10},
                           {"robust", "none"},
                           {"suspects", 0},
                           {"seconds", 1},
                           {"patience", 1},
                           {"members", {member}}});
  };
  EXPECT_EQ(parse_group(message()).members.size(), 1u);
  auto refused = [&](auto&& change) {
    nlohmann::json bad = message();
    change(bad);
    EXPECT_THROW(parse_group(bad), BadMessage) << bad;
  };
  refused([](auto& m) { m["elements"] = 11; });
  refused([](auto& m) { m["self"] = 1; });
  refused([](auto& m) { m["robust"] = "x"; });
  refused([](auto& m) { m["seconds"] = -1; });
  refused([](auto& m) { m["phase"] = -1; });
  refused([](auto& m) { m.erase("patience"); });
  refused([](auto& m) { m["members"][0]["begin"] = 1; });
  refused([](auto& m) { m["members"][0]["address"] = ""; });
  refused([](auto& m) { m["members"][0]["weight"] = -1; });
  refused([](auto& m) { m["members"][0].erase("send_token"); });
  refused([](auto& m) { m = 3; });
}

}  // namespace
}  // namespace yoke::collab
