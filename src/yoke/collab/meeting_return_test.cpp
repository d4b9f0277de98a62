// Peers and meeting points that return, and where the state comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/collab/test_meeting.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;
using testing::Room;

// Steps 6 and 7 are recorded; not everybody had heard of 7.
TEST(Meeting, ARunIsTakenUpAtTheNewestStepThatAPeerHas) {
  MeetingOptions options = Room::options_of(32);
  options.returns = true;
  options.known = {{6, 192}, {7, 230}};
  Room room(options);
  for (int i = 0; i < 2; ++i) {
    room.identities.push_back(Identity::random());
    room.join(i, room.identities.back());
  }
  EXPECT_EQ(room.work(0, 5, 6), nullptr);
  room.pass(0.05);
  EXPECT_EQ(room.reply_to(0), nullptr) << "another peer may have more";
  EXPECT_EQ(room.work(1, 5, 7), nullptr);
  room.pass(0.05);
  EXPECT_EQ(room.reply_to(1), Json({{"type", "lease"}, {"first", 230}, {"count", 5}}));
  Json behind = room.reply_to(0);
  EXPECT_EQ(behind.at("type"), "restart");
  EXPECT_EQ(behind.at("epoch"), 7);
  EXPECT_FALSE(behind.at("own"));
}

TEST(Meeting, WithoutTheLastStepTheRunContinuesFromTheOneBefore) {
  MeetingOptions options = Room::options_of(32);
  options.returns = true;
  options.known = {{6, 190}, {7, 230}};
  Room room(options);
  room.join(0, Identity::random());
  room.work(0, 5, 6);
  room.pass(9);
  EXPECT_EQ(room.reply_to(0).at("type"), "wait");
  room.pass(2);
  EXPECT_EQ(room.work(0, 5, 6), Json({{"type", "lease"}, {"first", 190}, {"count", 5}}));
}

TEST(Meeting, APeerThatClaimsAStepThatNeverWasIsNotBelieved) {
  MeetingOptions options = Room::options_of(32);
  options.returns = true;
  options.known = {{6, 192}, {7, 224}};
  Room room(options);
  room.join(0, Identity::random());
  room.work(0, 5, 9);
  room.pass(11);
  EXPECT_EQ(room.reply_to(0).at("type"), "wait");
  room.join(1, Identity::random());
  room.work(1, 5, 7);
  room.pass(0.05);
  EXPECT_EQ(room.reply_to(1).at("type"), "lease");
}

TEST(Meeting, ARunIsTakenUpAtAStepThatOthersCanFetch) {
  MeetingOptions options = Room::options_of(32);
  options.returns = true;
  options.known = {{6, 190}, {7, 230}};
  Room room(options);
  room.join(0, Identity::random(), {{"model.name", "mlp"}}, "");
  room.join(1, Identity::random());
  room.work(0, 5, 7);
  room.work(1, 5, 6);
  room.pass(9);
  EXPECT_EQ(room.reply_to(0).at("type"), "wait") << "another peer may have step 7";
  EXPECT_EQ(room.reply_to(1).at("type"), "wait");
  room.pass(2);
  EXPECT_EQ(room.work(1, 5, 6), Json({{"type", "lease"}, {"first", 190}, {"count", 5}}));
  Json ahead = room.work(0, 5, 7);
  EXPECT_EQ(ahead.at("type"), "restart");
  EXPECT_EQ(ahead.at("epoch"), 6);
  EXPECT_EQ(ahead.at("donors")[0].at("peer"), 1);
}

// Peer 1 accepts no connections, and peer 2, who could give a state to others, has none or an old one when
// peer 0 is gone.
struct OnlyAClientHasTheState : ::testing::Test {
  Room room;

  void reach_step_2_and_lose_peer_0(int64_t epoch_of_peer_2) {
    room.fill(1);
    room.join(1, Identity::random(), {{"model.name", "mlp"}}, "");
    EXPECT_EQ(room.work(1, 16, -1).at("type"), "restart");
    room.step(2, 16, 0);
    room.step(2, 16, 1);
    room.join(2, Identity::random());
    EXPECT_EQ(room.work(2, 5, epoch_of_peer_2).at("epoch"), 2);
    room.meeting.closed(0, room.now);
    EXPECT_EQ(room.work(1, 16, 2).at("type"), "lease");
    EXPECT_EQ(room.done(1, 16, 16, 2).at("type"), "lease") << "what peer 0 had";
    EXPECT_EQ(room.done(1, 16, 16, 2), nullptr);
    EXPECT_EQ(room.work(2, 5, epoch_of_peer_2), nullptr);
  }
  // Both ask again whenever they are told to wait.
  void wait(int64_t epoch_of_peer_2) {
    for (int i = 0; i < 30; ++i) {
      room.pass(0.4);
      if (room.reply_to(1) != nullptr) {
        room.pass(0.05);  // the meeting point looks while neither asks
        room.meeting.request(1, {{"type", "work"}, {"epoch", 2}, {"want", 32}}, room.now);
      }
      Json reply = room.reply_to(2);
      if (reply == nullptr) continue;
      if (reply.at("type") != "wait") {
        told_2 = reply;
        return;
      }
      room.meeting.request(2, {{"type", "work"}, {"epoch", epoch_of_peer_2}, {"want", 5}}, room.now);
    }
  }
  Json told_2;
};

TEST_F(OnlyAClientHasTheState, TheRunGoesBackAStep) {
  reach_step_2_and_lose_peer_0(1);
  wait(1);
  ASSERT_NE(told_2, nullptr);
  EXPECT_EQ(told_2.at("type"), "restart");
  EXPECT_EQ(told_2.at("epoch"), 1);
  EXPECT_EQ(room.work(2, 5, 1), Json({{"type", "lease"}, {"first", 32}, {"count", 5}}));
  const Json status = room.meeting.status(room.now);
  EXPECT_EQ(status.at("epoch"), 1);
  EXPECT_EQ(status.at("losses").size(), 1u);
  EXPECT_EQ(status.at("peers")[1].at("times_dropped"), 0);
  Json client = room.reply_to(1);
  if (client == nullptr || client.at("type") != "restart") client = room.work(1, 32, 2);
  EXPECT_EQ(client.at("type"), "restart");
  EXPECT_EQ(client.at("epoch"), 1);
  EXPECT_EQ(client.at("donors")[0].at("peer"), 2);
}

TEST_F(OnlyAClientHasTheState, TheRunEndsWithoutAnotherState) {
  reach_step_2_and_lose_peer_0(-1);
  wait(-1);
  ASSERT_NE(told_2, nullptr);
  EXPECT_EQ(told_2.at("type"), "ended");
  EXPECT_THAT(told_2.at("why").get<std::string>(), ::testing::HasSubstr("has the state of step 2"));
}

TEST(Meeting, APeerThatWasNotHeardOfForLongMayReturnOnANewConnection) {
  Room room;
  room.fill(1);
  EXPECT_EQ(room.join(5, room.identities[0]).at("type"), "refused");
  room.now += 11;
  EXPECT_EQ(room.join(6, room.identities[0]).at("type"), "welcome");
}

TEST(Meeting, APeerThatReturnsIsSentToOthersForTheState) {
  Room room;
  room.fill(2);
  room.meeting.closed(1, room.now);
  Json again = room.join(5, room.identities[1]);
  EXPECT_EQ(again.at("peer"), 1);
  Json restart = room.work(5, 8, -1);
  EXPECT_EQ(restart.at("type"), "restart");
  EXPECT_EQ(restart.at("donors").size(), 1u);
  EXPECT_EQ(restart.at("donors")[0].at("peer"), 0);
}

TEST(Meeting, TheFirstPeerThatOthersCanReachProvidesTheState) {
  Room room;
  room.join(0, Identity::random(), {{"model.name", "mlp"}}, "");
  EXPECT_EQ(room.work(0, 4, -1), nullptr);
  room.join(1, Identity::random());
  Json own = room.work(1, 4, -1);
  EXPECT_TRUE(own.at("own").get<bool>());
  room.pass(0.1);
  EXPECT_EQ(room.reply_to(0).at("donors")[0].at("peer"), 1);
}

}  // namespace
}  // namespace yoke::collab
