#include "yoke/parallel/common/ddp/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Indices = std::vector<int64_t>;

TEST(BucketPlan, TheFirstBucketIsSmallAndTheOthersFillUp) {
  std::vector<GradientSize> sizes(8, {100, torch::kFloat32, torch::kCPU});  // 400 bytes each
  EXPECT_THAT(plan_buckets(sizes, {7, 6, 5, 4, 3, 2, 1, 0}, {400, 1000}),
              ElementsAre(Indices{7}, Indices{6, 5, 4}, Indices{3, 2, 1}, Indices{0}));
}

TEST(BucketPlan, AGradientLargerThanABucketHasOneForItself) {
  std::vector<GradientSize> sizes = {{10}, {100000}, {10}, {10}};
  EXPECT_THAT(plan_buckets(sizes, {0, 1, 2, 3}, {1, 1000}),
              ElementsAre(Indices{0}, Indices{1}, Indices{2, 3}));
}

TEST(BucketPlan, TheLastBucketMayBeSmallToo) {
  std::vector<GradientSize> sizes(8, {100, torch::kFloat32, torch::kCPU});  // 400 bytes each
  EXPECT_THAT(plan_buckets(sizes, {7, 6, 5, 4, 3, 2, 1, 0}, {800, 100'000, 800}),
              ElementsAre(Indices{7, 6}, Indices{5, 4, 3, 2}, Indices{1, 0}));
  EXPECT_THAT(plan_buckets(sizes, {7, 6, 5, 4, 3, 2, 1, 0}, {1, 100'000, 1}),
              ElementsAre(Indices{7}, Indices{6, 5, 4, 3, 2, 1}, Indices{0}));
  EXPECT_THAT(plan_buckets(sizes, {7, 6, 5}, {10'000, 100'000, 10'000}), ElementsAre(Indices{7, 6, 5}));
}

TEST(BucketPlan, TypesAndDevicesDoNotMix) {
  std::vector<GradientSize> sizes = {{10}, {10, torch::kFloat64}, {10, torch::kFloat64}, {10}};
  EXPECT_THAT(plan_buckets(sizes, {0, 1, 2, 3}, {1000, 1000}),
              ElementsAre(Indices{0}, Indices{1, 2}, Indices{3}));
}

TEST(BucketPlan, NothingNeedsNoBucket) {
  EXPECT_THAT(plan_buckets({}, {}, {1, 1}), IsEmpty());
}

}  // namespace
}  // namespace yoke::parallel
