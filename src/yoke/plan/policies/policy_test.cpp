#include "yoke/plan/policies/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/plan/policies/test_table.h"

namespace yoke::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(Policy, NobodyStartsBeforeAllHaveCome) {
  Policy policy(options_of(Rule::kAsync, 3));
  EXPECT_THAT(policy.joined(2).releases, IsEmpty());
  EXPECT_THAT(policy.joined(0).releases, IsEmpty());
  EXPECT_THAT(released(policy.joined(1)), ElementsAre(0, 1, 2));
  EXPECT_EQ(policy.computing(), 3);
}

TEST(Policy, SyncUpdatesWithTheMeanOfAll) {
  Table table(options_of(Rule::kSync, 3));
  EXPECT_FALSE(table.push(1).update);
  EXPECT_THAT(table.push(0).releases, IsEmpty());
  const Decision& last = table.push(2);
  EXPECT_EQ(last.update, (Update{1, 3, 1.0 / 3}));
  EXPECT_THAT(released(last), ElementsAre(0, 1, 2));
  EXPECT_THAT(cancelled(last), IsEmpty());
}

TEST(Policy, KSyncCancelsWhoIsLate) {
  Table table(options_of(Rule::kKSync, 4, 2));
  GradientTags late = table.running.at(0);
  table.push(3);
  const Decision& last = table.push(1);
  EXPECT_EQ(last.update, (Update{1, 2, 0.5}));
  EXPECT_THAT(released(last), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(cancelled(last), ElementsAre(0, 2));
  EXPECT_EQ(table.policy.arrived(late).verdict, Verdict::kCancelled);
  EXPECT_EQ(table.push(0).verdict, Verdict::kAccepted);
}

TEST(Policy, KBatchSyncLetsTheEarlyComputeAnotherAtTheSameVersion) {
  Table table(options_of(Rule::kKBatchSync, 3, 3));
  const Decision& first = table.push(1);
  ASSERT_THAT(released(first), ElementsAre(1));
  EXPECT_EQ(first.releases[0].version, 0);
  EXPECT_FALSE(first.releases[0].fetch);
  table.push(1);
  const Decision& last = table.push(1);
  EXPECT_EQ(last.update, (Update{1, 3, 1.0 / 3}));
  EXPECT_THAT(released(last), ElementsAre(0, 1, 2));
  EXPECT_THAT(cancelled(last), ElementsAre(0, 2));
}

TEST(Policy, AsyncReleasesThePusherAlone) {
  Table table(options_of(Rule::kAsync, 3));
  EXPECT_EQ(table.push(2).update, (Update{1, 1, 1}));
  const Decision& second = table.push(0);
  EXPECT_EQ(second.staleness, 1);
  EXPECT_THAT(released(second), ElementsAre(0));
  EXPECT_EQ(second.releases[0].version, 2);
}

TEST(Policy, KAsyncReleasesItsContributorsAlone) {
  Table table(options_of(Rule::kKAsync, 4, 2));
  EXPECT_THAT(table.push(3).releases, IsEmpty());
  const Decision& update = table.push(0);
  EXPECT_EQ(update.update, (Update{1, 2, 0.5}));
  EXPECT_THAT(released(update), ElementsAre(3, 0));
  EXPECT_EQ(table.push(1).staleness, 1);
  EXPECT_EQ(table.push(3).staleness, 0);
  EXPECT_EQ(table.policy.version(), 2);
}

TEST(Policy, KBatchAsyncGivesThePushThatCompletesAnUpdateTheNewVersion) {
  Table table(options_of(Rule::kKBatchAsync, 3, 2));
  const Decision& first = table.push(0);
  ASSERT_THAT(released(first), ElementsAre(0));
  EXPECT_EQ(first.releases[0].version, 0);
  const Decision& second = table.push(1);
  EXPECT_EQ(second.update, (Update{1, 2, 0.5}));
  ASSERT_THAT(released(second), ElementsAre(1));
  EXPECT_EQ(second.releases[0].version, 1);
  EXPECT_TRUE(second.releases[0].fetch);
}

TEST(Policy, BoundedDelayHoldsWhoIsTooFarAhead) {
  Table table(options_of(Rule::kBoundedDelay, 3, 0, 1));
  EXPECT_THAT(released(table.push(0)), ElementsAre(0));  // clock 1, one ahead
  const Decision& held = table.push(0);
  EXPECT_TRUE(held.update) << "every gradient is an update";
  EXPECT_THAT(held.releases, IsEmpty());
  EXPECT_THAT(released(table.push(1)), ElementsAre(1));
  EXPECT_THAT(released(table.push(2)), ElementsAre(0, 2)) << "the slowest has moved";
}

TEST(Policy, BoundedDelayMayChangeWhileItRuns) {
  Table table(options_of(Rule::kBoundedDelay, 2, 0, 0));
  EXPECT_THAT(table.push(0).releases, IsEmpty());
  EXPECT_THAT(released(table.note(table.policy.set_max_delay(2))), ElementsAre(0));
  table.push(0);
  EXPECT_THAT(table.push(0).releases, IsEmpty()) << "three ahead";
  EXPECT_THAT(table.policy.set_max_delay(0).releases, IsEmpty());
  EXPECT_THAT(released(table.note(table.policy.set_max_delay(PolicyOptions::kUnbounded))), ElementsAre(0));
  EXPECT_EQ(table.push(0).update->weight, 1);
}

TEST(Policy, BoundedDelayAveragesGradientsOfTheSameParameters) {
  Table table(options_of(Rule::kBoundedDelay, 2, 0, 0));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(table.push(1).update->weight, 0.5);
    EXPECT_EQ(table.push(0).update->weight, 0.5);
  }
  Table ssp(options_of(Rule::kSsp, 2, 0, 0));
  EXPECT_EQ(ssp.push(1).update->weight, 1);
  EXPECT_THAT(released(ssp.push(0)), ElementsAre(1, 0));
}

TEST(Policy, KMayChangeWhileItRuns) {
  Table table(options_of(Rule::kKBatchAsync, 4, 3));
  table.push(0);
  table.push(1);
  EXPECT_EQ(table.note(table.policy.set_k(2)).update, (Update{1, 2, 0.5}));
  EXPECT_FALSE(table.policy.set_k(4).update);
  Table waiting(options_of(Rule::kKAsync, 4, 4));
  waiting.push(0);
  waiting.push(1);
  EXPECT_THAT(released(waiting.note(waiting.policy.set_k(2))), ElementsAre(0, 1));
}

TEST(Policy, RefusesWhatWasNeverGivenOut) {
  Table table(options_of(Rule::kAsync, 2));
  GradientTags tags = table.running.at(0);
  EXPECT_EQ(table.policy.arrived({7, 0, 0}).verdict, Verdict::kStranger);
  EXPECT_EQ(table.policy.arrived({-1, 0, 0}).verdict, Verdict::kStranger);
  EXPECT_EQ(table.policy.arrived({0, 5, tags.minibatch}).verdict, Verdict::kNotIssued);
  EXPECT_EQ(table.policy.arrived({0, -1, tags.minibatch}).verdict, Verdict::kNotIssued);
  EXPECT_EQ(table.policy.arrived({0, 0, 99}).verdict, Verdict::kNotIssued);
  EXPECT_EQ(table.policy.arrived({0, 0, -1}).verdict, Verdict::kNotIssued);
  EXPECT_EQ(table.policy.version(), 0);
  table.push(1);
  EXPECT_EQ(table.policy.arrived({0, 1, tags.minibatch}).verdict, Verdict::kNotIssued) << "another version";
  EXPECT_EQ(table.policy.accumulated(), 0);
}

TEST(Policy, CountsAResentGradientOnce) {
  for (Rule rule : {Rule::kSync, Rule::kKBatchSync, Rule::kAsync, Rule::kBoundedDelay}) {
    Table table(options_of(rule, 2, 2, 3));
    GradientTags tags = table.running.at(0);
    table.push(0);
    int64_t version = table.policy.version();
    const Decision& again = table.policy.arrived(tags);
    EXPECT_EQ(again.verdict, Verdict::kDuplicate) << to_string(rule);
    EXPECT_FALSE(again.update);
    EXPECT_THAT(again.releases, IsEmpty());
    EXPECT_EQ(table.policy.version(), version);
  }
}

TEST(Policy, ALostWorkerHoldsNobodyUp) {
  Table sync(options_of(Rule::kSync, 3));
  sync.push(0);
  sync.push(2);
  const Decision& lost = sync.leave(1);
  EXPECT_EQ(lost.update, (Update{1, 2, 0.5}));
  EXPECT_THAT(released(lost), ElementsAre(0, 2));
  Table gated(options_of(Rule::kSsp, 3, 0, 0));
  gated.push(0);
  gated.push(2);
  EXPECT_THAT(released(gated.leave(1)), ElementsAre(0, 2));
}

TEST(Policy, WhatALostWorkerHadPushedCounts) {
  Table table(options_of(Rule::kKSync, 3, 3));
  table.push(0);
  EXPECT_FALSE(table.leave(0).update);
  table.push(1);
  const Decision& last = table.push(2);
  EXPECT_EQ(last.update, (Update{1, 3, 1.0 / 3}));
  EXPECT_THAT(released(last), ElementsAre(1, 2));
}

TEST(Policy, KIsBoundedByThoseWhoAreLeft) {
  Table table(options_of(Rule::kKAsync, 4, 3));
  table.leave(0);
  table.leave(1);
  EXPECT_FALSE(table.push(2).update);
  EXPECT_EQ(table.push(3).update, (Update{1, 2, 0.5}));
  Table batch(options_of(Rule::kKBatchAsync, 4, 3));
  for (int worker : {0, 1, 2}) batch.leave(worker);
  batch.push(3);
  batch.push(3);
  EXPECT_EQ(batch.push(3).update, (Update{1, 3, 1.0 / 3}));
}

TEST(Policy, AWorkerThatComesBackStartsOnTheCurrentVersion) {
  Table table(options_of(Rule::kAsync, 2));
  GradientTags old = table.running.at(1);
  table.push(0);
  table.leave(1);
  EXPECT_EQ(table.policy.arrived(old).verdict, Verdict::kStranger);
  const Decision& back = table.join(1);
  ASSERT_THAT(released(back), ElementsAre(1));
  EXPECT_EQ(back.releases[0].version, 1);
  EXPECT_TRUE(back.releases[0].fetch);
  EXPECT_EQ(table.policy.arrived(old).verdict, Verdict::kCancelled);
  EXPECT_EQ(table.join(5).releases.size(), 1u) << "so may a new one";
  EXPECT_EQ(table.policy.alive(), 3);
}

TEST(Policy, JoiningAgainVoidsWhatOneDidBefore) {
  Table table(options_of(Rule::kSync, 2));
  table.push(0);
  GradientTags old = table.running.at(1);
  const Decision& again = table.join(1);  // its first life ended unseen: 0 goes on, then it joins
  EXPECT_TRUE(again.update);
  EXPECT_THAT(released(again), ElementsAre(0, 1));
  EXPECT_EQ(table.policy.arrived(old).verdict, Verdict::kCancelled);
  EXPECT_EQ(table.policy.alive(), 2);
}

TEST(Policy, AJoinerTakesTheClockOfTheSlowest) {
  Table table(options_of(Rule::kSsp, 2, 0, 1));
  for (int i = 0; i < 5; ++i) {
    table.push(0);
    table.push(1);
  }
  ASSERT_THAT(released(table.join(2)), ElementsAre(2));
  EXPECT_THAT(released(table.push(0)), ElementsAre(0));
  EXPECT_THAT(table.push(0).releases, IsEmpty()) << "two ahead of the joiner";
}

TEST(Policy, GoesOnFromACheckpointsVersion) {
  Policy policy(options_of(Rule::kAsync, 1), 40);
  EXPECT_EQ(policy.joined(0).releases.at(0).version, 40);
  EXPECT_EQ(policy.arrived({0, 40, 0}).update->version, 41);
}

TEST(Policy, SaysWhatIsWrongWithOptions) {
  auto make = [](Rule rule, int workers, int64_t k, int64_t delay) {
    return [=] { Policy policy(options_of(rule, workers, k, delay)); };
  };
  EXPECT_THAT(make(Rule::kSync, 0, 0, 0), ThrowsMessage<ConfigError>(HasSubstr("workers = 0")));
  EXPECT_THAT(make(Rule::kKSync, 4, 0, 0), ThrowsMessage<ConfigError>(HasSubstr("k_sync: k = 0")));
  EXPECT_THAT(make(Rule::kKAsync, 4, 5, 0), ThrowsMessage<ConfigError>(HasSubstr("Hint: use 1..4")));
  EXPECT_NO_THROW(make(Rule::kKBatchAsync, 4, 5, 0)());
  EXPECT_THAT(make(Rule::kSsp, 4, 0, -1), ThrowsMessage<ConfigError>(HasSubstr("max_delay = -1")));
  Policy policy(options_of(Rule::kAsync, 1));
  EXPECT_THAT([&] { policy.set_k(2); }, ThrowsMessage<ConfigError>(HasSubstr("async has no k")));
  EXPECT_THAT([&] { policy.set_max_delay(2); }, ThrowsMessage<ConfigError>(HasSubstr("no max_delay")));
  EXPECT_THAT([] { parse_rule("asink"); },
              ThrowsMessage<ConfigError>(HasSubstr("k_batch_async bounded_delay")));
  EXPECT_THAT([] { parse_max_delay("--max-delay", "-3"); },
              ThrowsMessage<ConfigError>(HasSubstr("--max-delay -3")));
  EXPECT_THAT([] { parse_max_delay("--max-delay", "3x"); }, ThrowsMessage<ConfigError>(HasSubstr("or inf")));
  EXPECT_EQ(parse_max_delay("--max-delay", "inf"), PolicyOptions::kUnbounded);
  for (const std::string& name : rule_names()) EXPECT_EQ(to_string(parse_rule(name)), name);
}

}  // namespace
}  // namespace yoke::plan
