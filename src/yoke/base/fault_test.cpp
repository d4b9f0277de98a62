#include "yoke/base/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "yoke/base/error.h"

namespace yoke::fault {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  try {
    parse(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// What is armed ends with the test.
struct Arming {
  Arming(const std::string& text, Place place = {}) { arm(parse(text), place); }
  ~Arming() { disarm(); }
};

int count(Effect wanted, Point point, int times) {
  int seen = 0;
  for (int i = 0; i < times; ++i) seen += at(point) == wanted ? 1 : 0;
  return seen;
}

TEST(Fault, TheTableIsInTheOrderOfItsPoints) {
  std::set<std::string> names;
  size_t index = 0;
  for (const PointInfo& point : points()) {
    EXPECT_EQ(static_cast<size_t>(point.point), index++);
    EXPECT_TRUE(names.insert(point.name).second) << point.name;
    EXPECT_THAT(list_points(), HasSubstr(point.name));
  }
}

TEST(Fault, ARuleNeedsAPointAndAttemptIsNone) {
  for (const char* text : {"attempt=0:kill", "attempt=0,rank=1:error", "rank=1:kill"})
    EXPECT_THAT(refusal_of(text), HasSubstr("has no fault point")) << text;
  EXPECT_EQ(parse(" rank=1 , at = frame.send : kill").size(), 1u);
}

TEST(Fault, ReadsRules) {
  auto rules = parse("rank=2,step=7,at=ddp.bucket.sent:kill; at=frame.send,p=0.01,seed=5:drop;");
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].at, Point::kDdpBucketSent);
  EXPECT_EQ(rules[0].rank, 2);
  EXPECT_EQ(rules[0].step, 7);
  EXPECT_EQ(rules[0].action, Action::kKill);
  EXPECT_EQ(rules[1].rank, -1);
  EXPECT_DOUBLE_EQ(rules[1].chance, 0.01);
  EXPECT_EQ(rules[1].seed, 5u);
  EXPECT_EQ(rules[1].action, Action::kDrop);
  EXPECT_DOUBLE_EQ(parse("rank=*,at=ps.pull:delay:200ms")[0].delay, 0.2);
  EXPECT_TRUE(parse("").empty());
}

TEST(Fault, NamesTheWordItDoesNotKnow) {
  EXPECT_THAT(refusal_of("at=frame.sent:kill"), HasSubstr("'frame.sent'"));
  EXPECT_THAT(refusal_of("at=frame.sent:kill"), HasSubstr("frame.send"));
  EXPECT_THAT(refusal_of("rnk=1,at=frame.send:kill"), HasSubstr("'rnk=1'"));
  EXPECT_THAT(refusal_of("rank=x,at=frame.send:kill"), HasSubstr("'rank=x'"));
  EXPECT_THAT(refusal_of("p=1.5,at=frame.send:drop"), HasSubstr("'p=1.5'"));
  EXPECT_THAT(refusal_of("at=frame.send:explode"), HasSubstr("'explode'"));
  EXPECT_THAT(refusal_of("at=ps.push:drop"), HasSubstr("ps.push accepts kill, stop, delay:TIME, error"));
  EXPECT_THAT(refusal_of("at=ps.push:delay:soon"), HasSubstr("delay:soon"));
  EXPECT_THAT(refusal_of("at=ps.push:delay"), HasSubstr("'delay'"));
  EXPECT_THAT(refusal_of("at=frame.send"), HasSubstr("no action"));
  EXPECT_THAT(refusal_of("rank=1:kill"), HasSubstr("at=POINT"));
}

TEST(Fault, OnlyAGradientCanBeFalsified) {
  EXPECT_EQ(parse("at=collab.gradient:noise")[0].action, Action::kNoise);
  EXPECT_EQ(parse("at=collab.gradient:corrupt")[0].action, Action::kCorrupt);
  for (const char* lie : {"flip", "scale", "noise", "drift"})
    EXPECT_THAT(refusal_of(fmt::format("at=frame.send:{}", lie)), HasSubstr("frame.send accepts"));
  Arming armed("at=collab.gradient,hit=1:flip; at=collab.gradient,hit=1:scale");
  EXPECT_EQ(at(Point::kCollabGradient), Effect::kFlip);
  EXPECT_EQ(at(Point::kCollabGradient), Effect::kScale);
}

TEST(Fault, NothingHappensWhereNothingIsArmed) {
  EXPECT_EQ(at(Point::kFrameSend), Effect::kNone);
}

TEST(Fault, MatchesRankAttemptStepAndHit) {
  Arming armed("rank=1,attempt=0,step=3,hit=2,at=frame.send:drop", {.rank = 1});
  EXPECT_EQ(count(Effect::kDrop, Point::kFrameSend, 5), 0);
  set_step(3);
  EXPECT_EQ(at(Point::kFrameReceive), Effect::kNone);
  EXPECT_EQ(at(Point::kFrameSend), Effect::kNone);
  EXPECT_EQ(at(Point::kFrameSend), Effect::kDrop);
  EXPECT_EQ(count(Effect::kDrop, Point::kFrameSend, 5), 0);
  Arming elsewhere("rank=1,at=frame.send:drop", {.rank = 2});
  EXPECT_EQ(at(Point::kFrameSend), Effect::kNone);
  Arming later("attempt=0,at=frame.send:drop", {.rank = 1, .attempt = 1});
  EXPECT_EQ(at(Point::kFrameSend), Effect::kNone);
}

TEST(Fault, TheLauncherHasOnlyItsOwnPoints) {
  Arming armed("at=frame.send:drop; rank=3,at=coordinator.reply:drop", {.rank = -1});
  EXPECT_EQ(at(Point::kFrameSend), Effect::kNone);
  EXPECT_EQ(at(Point::kCoordinatorReply, 2), Effect::kNone);
  EXPECT_EQ(at(Point::kCoordinatorReply, 3), Effect::kDrop);
}

TEST(Fault, ChancesAreKeptAndRepeat) {
  auto draw = [](uint64_t seed, int rank) {
    Arming armed(fmt::format("at=frame.send,p=0.25,seed={}:drop", seed), {.rank = rank});
    std::vector<bool> drops;
    for (int i = 0; i < 4000; ++i) drops.push_back(at(Point::kFrameSend) == Effect::kDrop);
    return drops;
  };
  auto first = draw(1, 0);
  EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), true)), 1000, 150);
  EXPECT_EQ(first, draw(1, 0));
  EXPECT_NE(first, draw(2, 0));
  EXPECT_NE(first, draw(1, 1));
}

TEST(Fault, ErrorsAreTheCallersOwnWhereItHasOne) {
  Arming armed("at=comm.collective.begin:error; at=checkpoint.write:error");
  EXPECT_THROW(at(Point::kCollectiveBegin), CommError);
  EXPECT_EQ(at(Point::kCheckpointWrite), Effect::kError);
}

TEST(FaultDeathTest, Kills) {
  EXPECT_EXIT(
      {
        arm(parse("at=ps.push:kill"), {});
        at(Point::kPsPush);
      },
      testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace yoke::fault
