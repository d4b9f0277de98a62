#include "cli/lab_stall_cost.h"

#include <gtest/gtest.h>

#include "yoke/plan/collectives/steps.h"

namespace yoke::cli {
namespace {

// A ring of two: 2(N-1) = 2 messages of half the array.
double all_reduce_of_two(double bytes, const plan::LinkCost& link) {
  const double seconds = plan::predict_seconds(plan::Collective::kAllReduce, plan::Algorithm::kRing, 2,
                                               static_cast<int64_t>(bytes), link);
  EXPECT_NEAR(seconds, 2 * (link.alpha + bytes / 2 * link.beta), 1e-12);
  return seconds;
}

TEST(Stall, OfTwoDevicesEqualsTheFormula) {
  const plan::LinkCost link{.alpha = 1e-3, .beta = 1e-9, .gamma = 0};
  const double bytes = 100e6, all_reduce = all_reduce_of_two(bytes, link);
  ASSERT_NEAR(all_reduce, 0.102, 1e-12);
  // 0.06 s of computation hide 0.04 s of it.
  const Stall slow = stall_of(0.06, all_reduce, bytes);
  EXPECT_NEAR(slow.exposed, 0.062, 1e-12);
  EXPECT_NEAR(slow.share(), 0.062 / 0.122, 1e-12);
  EXPECT_NEAR(slow.without_overlap(), 0.102 / 0.162, 1e-12);
  // Whatever the computation, the last quarter of the array travels after it.
  const Stall hidden = stall_of(10, all_reduce, bytes);
  EXPECT_NEAR(hidden.exposed, 0.0255, 1e-12);
}

TEST(Stall, AModelOfOneBucketHidesNothing) {
  const Stall stall = stall_of(10, 0.01, 1e6);
  EXPECT_DOUBLE_EQ(stall.exposed, 0.01);
  EXPECT_DOUBLE_EQ(stall.share(), stall.without_overlap());
}

}  // namespace
}  // namespace yoke::cli
