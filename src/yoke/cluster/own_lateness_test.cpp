#include "yoke/cluster/own_lateness.h"

#include <gtest/gtest.h>

namespace yoke::cluster {
namespace {

TEST(OwnLateness, ThreadInTimeAllowsNothing) {
  OwnLateness own(0.5);
  for (double now = 100; now < 110; now += 0.5) EXPECT_EQ(own.look(now), 0);
  EXPECT_EQ(own.allowance(), 0);
}

TEST(OwnLateness, SuspensionIsNobodysSilence) {
  OwnLateness own(0.5);
  own.look(100);
  EXPECT_DOUBLE_EQ(own.look(3700), 3599.5);
  EXPECT_EQ(own.allowance(), 10);
  for (double now = 3700.5; now < 3800; now += 0.5) EXPECT_EQ(own.look(now), 0);
  EXPECT_LT(own.allowance(), 0.1);
}

TEST(OwnLateness, LateThreadWaitsLongerForOthers) {
  OwnLateness own(0.5);
  own.look(100);
  EXPECT_DOUBLE_EQ(own.look(101.5), 1);
  EXPECT_DOUBLE_EQ(own.allowance(), 3);
  own.look(101.6);
  EXPECT_GT(own.allowance(), 2.9);
}

}  // namespace
}  // namespace yoke::cluster
