// What links can do, and who computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/collab/test_meeting.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;
using testing::Room;

TEST(Meeting, APeerWhoseUploadHoldsUpTheStepComputesOnlyWhenNobodyElseDoes) {
  Room room(Room::options_of(48));
  room.fill({{1e6, 1e6}, {1e6, 1e6}, {100, 1e6}});  // 40 KB take the last one 400 s
  room.step(2, 24, 0, Json::array(), /*idle=*/1);
  EXPECT_EQ(room.work(2, 16, 1), nullptr);
  EXPECT_EQ(room.meeting.status(0).at("peers")[2].at("role"), "receives");
  EXPECT_EQ(room.work(0, 24, 1).at("count"), 24);
  EXPECT_EQ(room.work(1, 24, 1).at("count"), 24);
  EXPECT_EQ(room.done(0, 24, 24, 1), nullptr);
  Json round = room.done(1, 24, 24, 1);
  ASSERT_EQ(round.at("type"), "average");
  EXPECT_EQ(round.at("members")[2].at("weight"), 0);
  room.meeting.closed(0, room.now);
  room.meeting.closed(1, room.now);
  EXPECT_EQ(room.reply_to(2).at("type"), "average");
  EXPECT_EQ(room.vote(2, round, false).at("type"), "wait");
  EXPECT_EQ(room.work(2, 24, 1).at("count"), 24);
  EXPECT_EQ(room.meeting.status(0).at("peers")[2].at("role"), "peer");
}

// 40 KB take it 10 s longer than the others, 400 samples take it 400 s less.
TEST(Meeting, APeerThatWaitsForTheFirstReportComputesIfThatIsWorthItsUpload) {
  Room room(Room::options_of(1000));
  room.fill({{1e6, 1e6}, {1e6, 1e6}, {4000, 1e6}});
  EXPECT_EQ(room.work(2, 100), nullptr) << "before any speed is known";
  EXPECT_EQ(room.work(0, 1).at("count"), 1);
  EXPECT_EQ(room.done(0, 1, 1).at("type"), "lease");  // a sample per second
  room.pass(0.05);
  EXPECT_EQ(room.reply_to(2).at("count"), 100);
}

TEST(Meeting, SpeedsDecideAsMuchAsTheyMay) {
  const std::vector<LinkSpeed> links = {{4e6, 4e6}, {1e6, 1e6}, {100, 1e6}};
  for (auto [policy, leased, share] : {std::tuple{RolePolicy::kAuto, false, 1.0},
                                       {RolePolicy::kShares, true, 1.0},
                                       {RolePolicy::kEqual, true, 1.0 / 3}}) {
    MeetingOptions options = Room::options_of(48);
    options.roles = policy;
    Room room(options);
    room.fill(links);
    const Json round = leased ? room.step(3, 16, 0) : room.step(2, 24, 0, Json::array(), /*idle=*/1);
    EXPECT_NEAR(round.at("members")[0].at("count").get<double>() / 10'000, share, 0.001);
    EXPECT_EQ(!room.work(2, 16, 1).is_null(), leased);
  }
}

TEST(Meeting, SharesFollowWhatProbesMeasured) {
  Room room(Room::options_of(48));
  room.fill(3);
  room.ask(2, {{"type", "work"},
               {"epoch", 0},
               {"want", 1},
               {"probe", {{"with", 0}, {"upload", 1e6}, {"download", 4e6}}}});
  const Json peers = room.meeting.status(0).at("peers");
  EXPECT_EQ(peers[2].at("upload"), 1e6);
  EXPECT_EQ(peers[2].at("download"), 4e6);
  EXPECT_EQ(peers[0].at("upload"), 4e6) << "at least";
  EXPECT_EQ(peers[0].at("download"), 1e6) << "at least";
  EXPECT_EQ(peers[1].at("upload"), 0);
}

TEST(Meeting, RoundsShowWhatLinksCanDo) {
  Room room(Room::options_of(48));
  room.fill(3);
  const Json received = Json::array({{{"peer", 1}, {"bytes", 3'000'000}, {"seconds", 1.0}},
                                     {{"peer", 2}, {"bytes", 1'000'000}, {"seconds", 2.0}}});
  room.step(3, 16, 0, received);
  Json peers = room.meeting.status(0).at("peers");
  EXPECT_EQ(peers[0].at("download"), 2e6);
  EXPECT_EQ(peers[1].at("upload"), 3e6);
  EXPECT_EQ(peers[2].at("upload"), 5e5);
  // Half as fast: the busiest links are believed, the others were idle part of the time.
  const Json slower = Json::array({{{"peer", 1}, {"bytes", 3'000'000}, {"seconds", 2.0}},
                                   {{"peer", 2}, {"bytes", 1'000'000}, {"seconds", 4.0}}});
  room.step(3, 16, 1, slower);
  peers = room.meeting.status(0).at("peers");
  EXPECT_EQ(peers[0].at("download"), 1.5e6);
  EXPECT_EQ(peers[1].at("upload"), 3e6);
  EXPECT_EQ(peers[2].at("upload"), 3.75e5);
}

}  // namespace
}  // namespace yoke::collab
