// Leases of samples: the batch is exact, whoever computes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/collab/test_meeting.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;
using testing::Room;

TEST(Meeting, ABatchIsLeasedExactlyAndAveragedWithTheSamplesOfEach) {
  Room room;
  room.fill(3);
  EXPECT_EQ(room.work(0, 5), Json({{"type", "lease"}, {"first", 0}, {"count", 5}}));
  EXPECT_EQ(room.work(1, 7), Json({{"type", "lease"}, {"first", 5}, {"count", 7}}));
  EXPECT_EQ(room.work(2, 100), Json({{"type", "lease"}, {"first", 12}, {"count", 20}}));
  EXPECT_EQ(room.done(0, 5, 5), nullptr);
  EXPECT_EQ(room.done(2, 20, 100), nullptr);
  Json round = room.done(1, 7, 7);
  ASSERT_EQ(round.at("type"), "average");
  EXPECT_EQ(round.at("members").size(), 3u);
  EXPECT_EQ(round.at("members")[2].at("weight"), 20);
  EXPECT_EQ(room.reply_to(0).at("self"), 0);
  EXPECT_EQ(room.vote(0, round), nullptr);
  EXPECT_EQ(room.vote(1, round), nullptr);
  EXPECT_EQ(room.reply_to(2).at("type"), "average");
  EXPECT_EQ(room.vote(2, round), Json({{"type", "commit"}, {"epoch", 1}, {"loss", 1.0}}));
  EXPECT_EQ(room.reply_to(0).at("type"), "commit");
  EXPECT_EQ(room.work(0, 5, 1).at("first"), 32);
}

TEST(Meeting, LeasesAreOfSeveralBatchesAtFirstAndOfOneAtTheEnd) {
  MeetingOptions options = Room::options_of(320);
  options.timeout = 100;
  Room room(options);
  room.fill(2);
  int64_t lease[] = {0, 0}, largest = 0, leases = 0, all = 0;
  for (int i : {0, 1}) lease[i] = room.work(i, 8).at("count");
  for (Json reply; all < 320; room.now += static_cast<double>(lease[0]) / 8) {
    for (int i : {0, 1}) {  // 8 samples per second each
      if (lease[i] == 0) continue;
      all += lease[i];
      ++leases;
      reply = room.ask(i, {{"type", "work"},
                           {"epoch", 0},
                           {"want", 8},
                           {"done", {{"samples", lease[i]}, {"loss", 1.0}, {"seconds", lease[i] / 8.0}}}});
      lease[i] = reply.is_null() || reply.at("type") != "lease" ? 0 : reply.at("count").get<int64_t>();
      largest = std::max(largest, lease[i]);
    }
    ASSERT_LT(leases, 40);
  }
  EXPECT_EQ(all, 320);
  EXPECT_EQ(largest, 104) << "70 % of the 19 s that are left";
  EXPECT_LT(leases, 16) << "instead of 40";
}

TEST(Meeting, APeerOfAnAbsurdSpeedGetsNoMoreThanThereIs) {
  for (double seconds : {1e-308, 1e-300, 1e-9, 1e300}) {
    Room room(Room::options_of(100));
    room.fill(1);
    EXPECT_EQ(room.work(0, 8).at("count"), 8);
    const Json done = {{"samples", 8}, {"loss", 1.0}, {"seconds", seconds}};
    const Json lease = room.ask(0, {{"type", "work"}, {"epoch", 0}, {"want", 8}, {"done", done}});
    EXPECT_GE(lease.at("count"), 8);
    EXPECT_LE(lease.at("count"), 92);
  }
}

TEST(Meeting, WithACommitComesTheNextLease) {
  Room room;
  room.fill(2);
  room.work(0, 16);
  room.work(1, 16);
  room.done(0, 16, 16);
  const Json round = room.done(1, 16, 16);
  room.reply_to(0);
  room.vote(0, round);
  room.meeting.request(1,
                       {{"type", "result"},
                        {"epoch", 0},
                        {"attempt", round.at("attempt")},
                        {"complete", true},
                        {"lost", Json::array()},
                        {"outliers", Json::array()},
                        {"usual_size", 0},
                        {"received", Json::array()}},
                       room.now);
  for (Meeting::Reply& reply : room.meeting.take_replies())
    EXPECT_EQ(reply.message.at("lease"), Json({{"first", 32 + 16 * reply.link}, {"count", 16}}));
}

TEST(Meeting, APeerWithoutTheStateDoesNotCountForTheQuorum) {
  MeetingOptions options = Room::options_of(32);
  options.min_peers = 2;
  options.quorum_timeout = 60;
  Room room(options);
  room.fill(1);
  room.join(1, Identity::random());
  EXPECT_EQ(room.work(0, 4), nullptr);
  EXPECT_EQ(room.work(1, 4, -1).at("type"), "restart");
  EXPECT_EQ(room.work(1, 4).at("count"), 4);
  room.pass(0.05);
  EXPECT_EQ(room.reply_to(0).at("count"), 4);
  // One that joins and never asks does not keep the run waiting forever.
  room.meeting.closed(1, room.now);
  room.join(2, Identity::random());
  room.pass(9);
  EXPECT_FALSE(room.meeting.ended());
  room.pass(70);
  room.pass(1);
  EXPECT_TRUE(room.meeting.ended());
}

TEST(Meeting, SamplesOfAPeerThatDiesAreComputedByOthers) {
  Room room;
  room.fill(2);
  room.work(0, 16);
  room.work(1, 8);
  EXPECT_EQ(room.done(1, 8, 8).at("count"), 8);  // 16 + 8 + 8
  room.meeting.closed(1, room.now);              // with 8 done and 8 leased
  EXPECT_EQ(room.meeting.status(0).at("accumulated"), 0);
  EXPECT_EQ(room.done(0, 16, 16).at("count"), 8);
  EXPECT_EQ(room.done(0, 8, 16).at("count"), 8);
  Json round = room.done(0, 8, 16);
  EXPECT_EQ(round.at("members").size(), 1u);
  EXPECT_EQ(round.at("members")[0].at("weight"), 32);
}

TEST(Meeting, SamplesThatAreNotFinishedInTimeGoToOthers) {
  Room room;
  room.fill(2);
  room.work(0, 16);
  room.work(1, 16);
  EXPECT_EQ(room.done(0, 16, 16), nullptr);
  room.pass(200);
  Json lease = room.reply_to(0);
  if (lease.at("type") == "wait") lease = room.work(0, 16);
  EXPECT_EQ(lease.at("count"), 16);
  EXPECT_EQ(room.done(1, 16, 16).at("type"), "restart");  // too late
}

TEST(Meeting, ALossThatIsNotFiniteDropsThePeer) {
  Room room;
  room.fill(2);
  room.work(0, 16);
  EXPECT_EQ(room.done(0, 16, 32, 0, nullptr).at("type"), "restart");
  EXPECT_EQ(room.meeting.status(0).at("peers")[0].at("why_dropped"), "its loss is not finite");
  EXPECT_FALSE(room.meeting.ended());
}

TEST(Meeting, ALossThatIsNotFiniteOnAnyPeerEndsTheRun) {
  Room room;
  room.fill(2);
  room.work(0, 16);
  room.work(1, 16);
  EXPECT_EQ(room.done(0, 16, 16, 0, nullptr).at("type"), "restart");
  const Json end = room.done(1, 16, 16, 0, nullptr);
  EXPECT_EQ(end.at("type"), "ended");
  EXPECT_THAT(end.at("why"), ::testing::HasSubstr("the loss of step 0 is not finite on any peer (2 tried)"));
  EXPECT_TRUE(room.meeting.ended());
}

TEST(Meeting, ALossThatIsNotFiniteEndsTheRunAlsoIfOthersNeverTry) {
  Room room;
  room.fill(2);
  for (int i = 0; i < 2; ++i) {
    room.work(0, 16);
    EXPECT_EQ(room.done(0, 16, 32, 0, nullptr).at("type"), "restart");
  }
  room.work(0, 16);
  EXPECT_EQ(room.done(0, 16, 32, 0, nullptr).at("type"), "ended");
}

// 16 samples take the last one 16 s; the others do all that is left in 4 s.
TEST(Meeting, ASlowPeerGetsNoLeaseForWhichTheOthersWouldWait) {
  Room room(Room::options_of(96));
  room.fill(3);
  for (int i = 0; i < 3; ++i) room.work(i, 16);
  EXPECT_EQ(room.done(0, 16, 16).at("count"), 16);
  EXPECT_EQ(room.done(1, 16, 16).at("count"), 16);
  room.meeting.request(2,
                       {{"type", "work"},
                        {"epoch", 0},
                        {"want", 16},
                        {"done", {{"samples", 16}, {"loss", 1.0}, {"seconds", 16}}}},
                       room.now);
  EXPECT_EQ(room.reply_to(2), nullptr);
  room.now += 1;
  EXPECT_EQ(room.done(0, 16, 16).at("count"), 16);
  EXPECT_EQ(room.done(0, 16, 16), nullptr);
  EXPECT_EQ(room.reply_to(2), nullptr);
  EXPECT_EQ(room.done(1, 16, 16).at("type"), "average");
}

TEST(Meeting, ASlowPeerTakesTheRestIfTheOthersDoNotFinish) {
  Room room(Room::options_of(96));
  room.fill(2);
  room.work(0, 16);
  room.work(1, 16);
  EXPECT_EQ(room.done(0, 16, 64).at("count"), 64);  // 4 s
  room.meeting.request(1,
                       {{"type", "work"},
                        {"epoch", 0},
                        {"want", 16},
                        {"done", {{"samples", 16}, {"loss", 1.0}, {"seconds", 16}}}},
                       room.now);
  room.meeting.closed(0, room.now);
  room.pass(0.1);
  EXPECT_EQ(room.reply_to(1).at("count"), 16);
}

TEST(Meeting, APeerThatMissedTheLastStepTakesItsStateBeforeTheOthersLeave) {
  MeetingOptions options = Room::options_of(4);
  options.steps = 1;
  Room room(options);
  room.fill(2);
  room.work(0, 4);
  EXPECT_EQ(room.work(1, 4), nullptr);
  room.pass(0.5);
  EXPECT_EQ(room.reply_to(1).at("type"), "wait");
  EXPECT_EQ(room.done(0, 4, 4), nullptr) << "the other one may have to finish something";
  room.pass(2);
  EXPECT_EQ(room.reply_to(0).at("type"), "wait");
  const Json round = room.work(0, 4);
  ASSERT_EQ(round.at("members").size(), 1u);
  EXPECT_EQ(room.vote(0, round).at("type"), "commit");
  EXPECT_EQ(room.work(0, 4, 1), nullptr) << "who has the state stays";
  const Json late = room.work(1, 4);
  EXPECT_EQ(late.at("type"), "restart");
  EXPECT_EQ(late.at("donors").size(), 1u);
  EXPECT_EQ(room.work(1, 4, 1).at("type"), "over");
  room.pass(0.1);
  EXPECT_EQ(room.reply_to(0).at("type"), "over");
}

TEST(Meeting, NobodyWaitsForLongForAPeerThatMissedTheLastStep) {
  MeetingOptions options = Room::options_of(4);
  options.steps = 1;
  Room room(options);
  room.fill(2);
  room.work(0, 4);
  room.work(1, 4);
  room.pass(0.5);
  room.reply_to(1);
  room.done(0, 4, 4);
  room.pass(2);
  room.reply_to(0);
  room.vote(0, room.work(0, 4));
  EXPECT_EQ(room.work(0, 4, 1), nullptr);
  room.pass(11);
  EXPECT_EQ(room.reply_to(0).at("type"), "over");
  EXPECT_EQ(room.work(1, 4).at("type"), "over") << "in vain";
}

TEST(Meeting, TheLastStepEndsTheRun) {
  MeetingOptions options = Room::options_of(4);
  options.steps = 1;
  Room room(options);
  room.fill(1);
  room.work(0, 4);
  Json round = room.done(0, 4, 4);
  EXPECT_EQ(room.vote(0, round).at("type"), "commit");
  EXPECT_EQ(room.work(0, 4, 1).at("type"), "over");
}

}  // namespace
}  // namespace yoke::collab
