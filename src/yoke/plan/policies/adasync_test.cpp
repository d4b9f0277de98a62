#include "yoke/plan/policies/adasync.h"

#include <gtest/gtest.h>

namespace yoke::plan {
namespace {

TEST(AdaSync, FollowsBothLawsOfTheReference) {
  for (Rule rule : {Rule::kKBatchSync, Rule::kKBatchAsync}) {
    EXPECT_NEAR(adasync_k(rule, 8, 1, 1, 1), 1, 1e-9);
    EXPECT_NEAR(adasync_k(rule, 8, 1, 1, 0.5), 1.4142, 1e-4);
    EXPECT_NEAR(adasync_k(rule, 8, 1, 1, 0.25), 2, 1e-9);
  }
  for (Rule rule : {Rule::kKSync, Rule::kKAsync}) {
    EXPECT_NEAR(adasync_k(rule, 8, 1, 1, 1), 1, 1e-9);
    EXPECT_NEAR(adasync_k(rule, 8, 1, 1, 0.5), 1.3757, 1e-4);
    EXPECT_NEAR(adasync_k(rule, 8, 1, 1, 0.25), 1.8714, 1e-4);
  }
}

TEST(AdaSync, StaysBetweenItsStartAndAllWorkers) {
  EXPECT_EQ(adasync_whole_k(Rule::kKAsync, 8, 2, 1, 4), 2);
  EXPECT_EQ(adasync_whole_k(Rule::kKBatchAsync, 8, 2, 1, 1e-9), 8);
  EXPECT_EQ(adasync_whole_k(Rule::kKSync, 8, 8, 1, 0.1), 8);
  EXPECT_EQ(adasync_whole_k(Rule::kKSync, 8, 1, 1, 0.25), 2);
}

}  // namespace
}  // namespace yoke::plan
