// Who is admitted, and what malformed requests and silence cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/collab/test_meeting.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using testing::Room;

TEST(Meeting, AnotherModelOrVersionIsRefusedByName) {
  Room room;
  Json reply = room.join(0, Identity::random(), {{"model.name", "lenet"}});
  EXPECT_EQ(reply.at("type"), "refused");
  EXPECT_THAT(reply.at("why"), HasSubstr("model.name: the run has mlp, this peer lenet"));
  EXPECT_THAT(room.join(1, Identity::random(), Json::object()).at("why"), HasSubstr("this peer has none"));
  EXPECT_THAT(room.join(2, Identity::random(), {{"model.name", "mlp"}}, "", 99).at("why"),
              HasSubstr("version 99"));
  EXPECT_THAT(room.join(3, Identity::random(), {{"model.name", "mlp"}}, "", 2).at("why"),
              HasSubstr("protocol version 2 instead of 4: use the same version of Yoke"));
  EXPECT_EQ(room.meeting.present(), 0);
}

TEST(Meeting, ASecondPeerWithTheSameIdentityIsRefused) {
  Room room;
  room.fill(1);
  EXPECT_THAT(room.join(1, room.identities[0]).at("why"), HasSubstr("already in this run as peer 0"));
  EXPECT_EQ(room.work(0, 5).at("type"), "lease");
}

TEST(Meeting, APeerWithoutThePrivateKeyIsNotAdmitted) {
  Room room;
  Identity honest = Identity::random(), thief = Identity::random();
  Json challenge = room.ask(0, {{"type", "hello"},
                                {"version", kProtocolVersion},
                                {"run", {{"model.name", "mlp"}}},
                                {"key", honest.public_key()},
                                {"host", ""},
                                {"address", ""},
                                {"upload", 0},
                                {"download", 0}});
  Json reply = room.ask(0, {{"type", "prove"}, {"signature", thief.sign(proof_text(challenge.at("nonce")))}});
  EXPECT_THAT(reply.at("why"), HasSubstr("private key"));
}

TEST(Meeting, APeerThatSendsNothingIsLeftOutAndTheOthersGoOn) {
  Room room;
  room.fill(2);
  room.work(0, 32);
  EXPECT_EQ(room.work(1, 4), nullptr);
  room.pass(0.5);
  EXPECT_EQ(room.reply_to(1).at("type"), "wait");  // it never asks again
  room.pass(20);
  EXPECT_EQ(room.meeting.status(room.now).at("peers")[1].at("why_dropped"), "sent nothing");
  EXPECT_EQ(room.done(0, 32, 32).at("members").size(), 1u);
}

TEST(Meeting, TooFewPeersEndTheRun) {
  MeetingOptions options = Room::options_of(32);
  options.min_peers = 2;
  options.quorum_timeout = 60;
  Room room(options);
  room.fill(1);
  EXPECT_EQ(room.work(0, 4), nullptr);
  room.pass(1);
  EXPECT_EQ(room.reply_to(0).at("type"), "wait");
  room.pass(100);
  EXPECT_THAT(room.work(0, 4).at("why"), HasSubstr("quorum lost: 1 of at least 2"));
  EXPECT_TRUE(room.meeting.ended());
}

TEST(Meeting, MalformedRequestsCostTheirSenderTheLinkOnly) {
  Room room;
  room.fill(1);
  const std::vector<Json> bad = {nullptr,
                                 3,
                                 Json::array(),
                                 {{"type", 1}},
                                 {{"type", "dance"}},
                                 {{"type", "work"}},
                                 {{"type", "prove"}},
                                 {{"type", "result"}},
                                 {{"type", "hello"}, {"version", "x"}},
                                 {{"type", "hello"},
                                  {"version", kProtocolVersion},
                                  {"run", {{"model.name", "mlp"}}},
                                  {"key", "k"},
                                  {"host", "h"},
                                  {"address", ""},
                                  {"upload", -1},
                                  {"download", 0}}};
  int link = 10;
  for (const Json& message : bad) {
    room.meeting.request(++link, message, 0);
    Json reply = room.reply_to(link);
    EXPECT_EQ(reply.at("type"), "refused") << message;
  }
  EXPECT_EQ(room.work(0, 5).at("type"), "lease");
  EXPECT_EQ(room.done(0, 4, 5).at("type"), "refused");  // 4 of a lease of 5
  EXPECT_EQ(room.meeting.present(), 0);
}

}  // namespace
}  // namespace yoke::collab
