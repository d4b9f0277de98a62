// Workers that are lost and come back, under each rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/plan/policies/policy.h"
#include "yoke/plan/policies/test_table.h"

namespace yoke::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Three workers, two updates, then worker 2 is lost.
Table without_the_third(Rule rule, int64_t k = 0, int64_t max_delay = 0) {
  Table table(options_of(rule, 3, k, max_delay));
  for (int i = 0; i < 2; ++i) {
    for (int worker : {0, 1, 2}) table.push(worker);
  }
  table.leave(2);
  return table;
}

TEST(PolicyRejoin, SyncCountsTheWorkerFromTheNextUpdateOn) {
  Table table = without_the_third(Rule::kSync);
  table.push(0);
  EXPECT_EQ(table.push(1).update, (Update{3, 2, 0.5})) << "P has shrunk";
  table.push(0);
  const Decision& back = table.join(2);
  ASSERT_THAT(released(back), ElementsAre(2));
  EXPECT_EQ(back.releases[0].version, 3);
  EXPECT_TRUE(back.releases[0].fetch);
  EXPECT_FALSE(table.push(1).update) << "the third is waited for again";
  EXPECT_EQ(table.push(2).update, (Update{4, 3, 1.0 / 3}));
}

TEST(PolicyRejoin, WhereRoundsAreKeptItTakesPartFromTheNextOneOn) {
  PolicyOptions options = options_of(Rule::kSync, 2);
  options.keeps_rounds = true;
  Table table(options);
  EXPECT_THAT(released(table.join(2)), IsEmpty()) << "in the middle of a round";
  table.push(0);
  const Decision& update = table.push(1);
  EXPECT_EQ(update.update, (Update{1, 2, 0.5}));
  EXPECT_THAT(released(update), ElementsAre(0, 1, 2));
  table.push(1);
  EXPECT_THAT(released(table.join(3)), IsEmpty());
  EXPECT_THAT(released(table.leave(3)), IsEmpty()) << "before it took part";
  table.push(0);
  EXPECT_EQ(table.push(2).update, (Update{2, 3, 1.0 / 3}));
}

TEST(PolicyRejoin, WhereRoundsAreKeptWhoWaitsReplacesTheLastOne) {
  PolicyOptions options = options_of(Rule::kKSync, 1, 1);
  options.keeps_rounds = true;
  Table table(options);
  EXPECT_THAT(released(table.join(1)), IsEmpty());
  EXPECT_THAT(released(table.leave(0)), ElementsAre(1));
}

TEST(PolicyRejoin, KSyncMayTakeTheWorkerAmongItsFirst) {
  Table table = without_the_third(Rule::kKSync, 2);
  EXPECT_THAT(released(table.join(2)), ElementsAre(2));
  table.push(2);
  const Decision& update = table.push(0);
  EXPECT_EQ(update.update->gradients, 2);
  EXPECT_THAT(cancelled(update), ElementsAre(1));
}

TEST(PolicyRejoin, KBatchSyncTakesItsMinibatches) {
  Table table = without_the_third(Rule::kKBatchSync, 3);
  table.push(0);
  int64_t version = table.policy.version();
  EXPECT_EQ(table.join(2).releases.at(0).version, version);
  table.push(2);
  const Decision& update = table.push(2);
  EXPECT_EQ(update.update, (Update{version + 1, 3, 1.0 / 3}));
  EXPECT_THAT(released(update), ElementsAre(0, 1, 2));
}

TEST(PolicyRejoin, AsyncSimplySeesItAgain) {
  Table table = without_the_third(Rule::kAsync);
  int64_t version = table.policy.version();
  EXPECT_THAT(released(table.join(2)), ElementsAre(2));
  EXPECT_EQ(table.push(0).update->version, version + 1);
  EXPECT_EQ(table.push(2).staleness, 1);
}

TEST(PolicyRejoin, KAsyncHasItsKAgain) {
  Table table = without_the_third(Rule::kKAsync, 3);
  table.push(0);
  EXPECT_EQ(table.push(1).update->gradients, 2) << "all that can come";
  table.join(2);
  table.push(0);
  EXPECT_FALSE(table.push(1).update);
  EXPECT_EQ(table.push(2).update->gradients, 3);
}

TEST(PolicyRejoin, KBatchAsyncTakesItsMinibatches) {
  Table table = without_the_third(Rule::kKBatchAsync, 2);
  table.join(2);
  EXPECT_FALSE(table.push(2).update);
  EXPECT_EQ(table.push(2).update->gradients, 2);
}

// With no delay rounds are averages: who comes in the middle of one would count on top of it.
TEST(PolicyRejoin, BoundedDelayOfZeroTakesTheWorkerIntoTheNextRound) {
  Table table = without_the_third(Rule::kBoundedDelay);
  EXPECT_EQ(table.push(0).update->weight, 1.0 / 3) << "released before the loss";
  EXPECT_THAT(released(table.push(1)), ElementsAre(0, 1));
  EXPECT_EQ(table.push(1).update->weight, 0.5);
  EXPECT_THAT(table.join(2).releases, IsEmpty());
  EXPECT_EQ(table.push(0).update->weight, 0.5);
  EXPECT_THAT(released(table.policy.left(7)), IsEmpty());
  ASSERT_EQ(table.running.size(), 3u) << "all three began the next round";
  for (int worker : {2, 0, 1}) EXPECT_EQ(table.push(worker).update->weight, 1.0 / 3);
}

TEST(PolicyRejoin, WhoWaitsForTheNextRoundIsNotForgotten) {
  for (Rule rule : {Rule::kBoundedDelay, Rule::kSsp}) {
    Table table = without_the_third(rule);
    EXPECT_THAT(table.join(2).releases, IsEmpty());
    EXPECT_THAT(released(table.leave(0)), IsEmpty());
    EXPECT_THAT(released(table.leave(1)), ElementsAre(2)) << "nobody else is left";
    Table raised = without_the_third(rule);
    raised.join(2);
    EXPECT_THAT(released(raised.policy.set_max_delay(1)), ElementsAre(2));
  }
}

TEST(PolicyRejoin, SspGivesItTheClockOfTheSlowest) {
  Table table = without_the_third(Rule::kSsp, 0, 1);
  EXPECT_THAT(released(table.join(2)), ElementsAre(2));
  EXPECT_THAT(released(table.push(0)), ElementsAre(0));
  EXPECT_THAT(table.push(0).releases, IsEmpty()) << "two ahead";
  table.push(1);
  EXPECT_THAT(released(table.push(2)), ElementsAre(0, 2));
}

TEST(PolicyRejoin, AloneItGoesOnUnderEveryRule) {
  for (const std::string& name : rule_names()) {
    Table table(options_of(parse_rule(name), 2, 2, 0));
    table.leave(0);
    table.leave(1);
    EXPECT_THAT(released(table.join(1)), ElementsAre(1)) << name;
    for (int i = 0; i < 4; ++i) table.push(1);
    EXPECT_GE(table.policy.version(), 2) << name;
  }
}

TEST(PolicyRejoin, GradientsOfTheLifeBeforeAreRefusedUnderEveryRule) {
  for (const std::string& name : rule_names()) {
    Table table(options_of(parse_rule(name), 3, 2, 1));
    GradientTags old = table.running.at(2);
    table.leave(2);
    EXPECT_EQ(table.policy.arrived(old).verdict, Verdict::kStranger) << name;
    table.join(2);
    EXPECT_EQ(table.policy.arrived(old).verdict, Verdict::kCancelled) << name;
    EXPECT_EQ(table.policy.alive(), 3) << name;
    for (int i = 0; i < 6; ++i) {
      for (int worker : {0, 1, 2}) {
        if (table.running.count(worker) > 0) table.push(worker);
      }
    }
    EXPECT_GE(table.policy.version(), 4) << name;
  }
}

}  // namespace
}  // namespace yoke::plan
