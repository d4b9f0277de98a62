#include "yoke/collab/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/collab/identity.h"

namespace yoke::collab {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Peers by link; time is a number.
struct Room {
  explicit Room(MeetingOptions options = options_of(32)) : meeting(std::move(options), 0) {}

  static MeetingOptions options_of(int64_t target) {
    MeetingOptions options;
    options.run = {{"model.name", "mlp"}};
    options.steps = 10;
    options.elements = 10'000;
    options.target_batch = target;
    options.timeout = 10;
    return options;
  }

  // The reply to `link`, or null.
  Json reply_to(int link) {
    for (Meeting::Reply& reply : meeting.take_replies())
      inbox[reply.link].push_back(std::move(reply.message));
    if (inbox[link].empty()) return nullptr;
    Json first = inbox[link].front();
    inbox[link].erase(inbox[link].begin());
    return first;
  }
  Json ask(int link, const Json& message) {
    meeting.request(link, message, now);
    return reply_to(link);
  }
  Json join(int link, const Identity& identity, Json run = {{"model.name", "mlp"}},
            std::string address = "h:1", int version = kProtocolVersion) {
    Json reply = ask(link, {{"type", "hello"},
                            {"version", version},
                            {"run", run},
                            {"key", identity.public_key()},
                            {"host", "here"},
                            {"address", address},
                            {"bandwidth", 0}});
    if (reply.at("type") != "challenge") return reply;
    return ask(link, {{"type", "prove"}, {"signature", identity.sign(proof_text(reply.at("nonce")))}});
  }
  Json work(int link, int64_t want, int64_t epoch = 0) {
    return ask(link, {{"type", "work"}, {"epoch", epoch}, {"want", want}});
  }
  Json done(int link, int64_t samples, int64_t want, int64_t epoch = 0, Json loss = 1.0) {
    return ask(link, {{"type", "work"},
                      {"epoch", epoch},
                      {"want", want},
                      {"done", {{"samples", samples}, {"loss", loss}, {"seconds", 1}}}});
  }
  Json vote(int link, const Json& round, bool complete = true, Json lost = Json::array()) {
    return ask(link, {{"type", "result"},
                      {"epoch", round.at("epoch")},
                      {"attempt", round.at("attempt")},
                      {"complete", complete},
                      {"lost", lost},
                      {"outliers", Json::array()}});
  }
  void pass(double seconds) {
    now += seconds;
    meeting.tick(now);
  }
  // Admitted peers 0, 1, … on links of the same numbers, all at the current state.
  void fill(int peers) {
    for (int i = 0; i < peers; ++i) {
      identities.push_back(Identity::random());
      ASSERT_EQ(join(i, identities.back()).at("type"), "welcome");
      ASSERT_EQ(work(i, 1, -1).at("type"), "restart");
    }
  }

  Meeting meeting;
  double now = 0;
  std::map<int, std::vector<Json>> inbox;
  std::vector<Identity> identities;
};

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

TEST(Meeting, AnotherModelOrVersionIsRefusedByName) {
  Room room;
  Json reply = room.join(0, Identity::random(), {{"model.name", "lenet"}});
  EXPECT_EQ(reply.at("type"), "refused");
  EXPECT_THAT(reply.at("why"), HasSubstr("model.name: the run has mlp, this peer lenet"));
  EXPECT_THAT(room.join(1, Identity::random(), Json::object()).at("why"), HasSubstr("this peer has none"));
  EXPECT_THAT(room.join(2, Identity::random(), {{"model.name", "mlp"}}, "", 99).at("why"),
              HasSubstr("version 99"));
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
                                {"version", 1},
                                {"run", {{"model.name", "mlp"}}},
                                {"key", honest.public_key()},
                                {"host", ""},
                                {"address", ""},
                                {"bandwidth", 0}});
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
  room.fill(1);
  room.work(0, 32);
  EXPECT_EQ(room.done(0, 32, 32, 0, nullptr).at("type"), "restart");
  EXPECT_EQ(room.meeting.status(0).at("peers")[0].at("why_dropped"), "its loss is not finite");
}

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
                                 {{"type", "hello"}, {"version", "x"}}};
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

TEST(Meeting, APeerThatWasNotHeardOfForLongMayReturnOnANewConnection) {
  Room room;
  room.fill(1);
  EXPECT_EQ(room.join(5, room.identities[0]).at("type"), "refused");
  room.now += 11;
  EXPECT_EQ(room.join(6, room.identities[0]).at("type"), "welcome");
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
