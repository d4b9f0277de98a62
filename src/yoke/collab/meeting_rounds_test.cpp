// Votes, and what happens after a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/collab/test_meeting.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;
using testing::Room;

TEST(Meeting, AReducerThatIsLostSumsNoMore) {
  Room room;
  room.fill(3);
  for (int i = 0; i < 3; ++i) room.work(i, i == 2 ? 12 : 10);
  room.done(0, 10, 10);
  room.done(1, 10, 10);
  Json round = room.done(2, 12, 10);
  for (int i = 0; i < 2; ++i) room.reply_to(i);
  const Json blame = Json::array({{{"peer", 1}, {"why", "could not be reached"}}});
  room.vote(0, round, false, blame);
  room.vote(2, round, false, blame);
  Json second = room.vote(1, round, true);
  ASSERT_EQ(second.at("type"), "average");
  EXPECT_EQ(second.at("attempt"), 1);
  EXPECT_EQ(second.at("members")[1].at("count"), 0);
  EXPECT_EQ(
      second.at("members")[0].at("count").get<int64_t>() + second.at("members")[2].at("count").get<int64_t>(),
      10'000);
}

TEST(Meeting, AMemberLostDuringTheRoundIsReplacedByMoreSamples) {
  Room room;
  room.fill(2);
  room.work(0, 16);
  room.work(1, 16);
  room.done(0, 16, 16);
  Json round = room.done(1, 16, 16);
  room.reply_to(0);
  room.meeting.closed(1, room.now);
  EXPECT_EQ(room.vote(0, round, false, Json::array({{{"peer", 1}, {"why", "closed"}}})).at("type"), "wait");
  EXPECT_EQ(room.work(0, 32).at("count"), 16);
  EXPECT_EQ(room.done(0, 16, 32).at("members")[0].at("weight"), 32);
}

}  // namespace
}  // namespace yoke::collab
