#include "yoke/compute/recompute_policy.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::compute {
namespace {

std::vector<BlockCost> uniform(size_t n) {
  return std::vector<BlockCost>(n);
}

TEST(RecomputePolicy, SqrtReachesTheKnownPeaks) {
  for (auto [n, peak] : {std::pair(16, 8), std::pair(25, 10), std::pair(64, 16)}) {
    auto segments = recompute_segments("sqrt", uniform(n));
    EXPECT_EQ(peak_bytes(segments, uniform(n)), peak);
    // All but the last of sqrt(n) segments run twice.
    size_t root = peak / 2;
    EXPECT_EQ(segments.size(), root);
    EXPECT_EQ(forward_calls(segments), 2 * n - root);
  }
}

TEST(RecomputePolicy, SqrtOfAnUnevenChainHasSegmentsOfAtMostOneMore) {
  for (size_t n = 1; n < 40; ++n) {
    auto segments = recompute_segments("sqrt", uniform(n));
    auto k = segments.size();
    EXPECT_EQ(segments.back().end, n);
    for (const Segment& s : segments) EXPECT_LE(s.end - s.begin, (n + k - 1) / k);
  }
}

TEST(RecomputePolicy, NoneAndBlocksAreTheExtremes) {
  EXPECT_EQ(recompute_segments("none", uniform(3)), (std::vector<Segment>{{0, 3, false}}));
  EXPECT_EQ(recompute_segments("blocks", uniform(3)),
            (std::vector<Segment>{{0, 1, true}, {1, 2, true}, {2, 3, false}}));
  EXPECT_EQ(forward_calls(recompute_segments("none", uniform(3))), 3u);
  EXPECT_EQ(forward_calls(recompute_segments("blocks", uniform(3))), 5u);
  EXPECT_TRUE(recompute_segments("sqrt", {}).empty());
}

TEST(RecomputePolicy, FewerBytesMeanMoreRecomputationAndNoMoreThanNeeded) {
  auto blocks = uniform(16);
  EXPECT_EQ(segments_within(17, blocks), (std::vector<Segment>{{0, 16, false}}));
  EXPECT_EQ(segments_within(15, blocks), (std::vector<Segment>{{0, 3, true}, {3, 16, false}}));
  size_t calls = 0;
  for (int bytes = 17; bytes >= 8; --bytes) {
    auto segments = segments_within(bytes, blocks).value();
    EXPECT_LE(peak_bytes(segments, blocks), bytes);
    EXPECT_GE(forward_calls(segments), calls);
    calls = forward_calls(segments);
  }
}

TEST(RecomputePolicy, CutsWhereTheBytesAre) {
  // One block is as large as all others together.
  std::vector<BlockCost> blocks = {{100, 10}, {10, 10}, {10, 10}, {80, 10}, {10, 10}};
  auto segments = segments_within(130, blocks).value();
  EXPECT_EQ(segments, (std::vector<Segment>{{0, 1, true}, {1, 5, false}}));
  EXPECT_EQ(peak_bytes(segments, blocks), 130);
}

TEST(RecomputePolicy, TooFewBytesHaveNoCutAndABudgetStartsWithTheSmallest) {
  EXPECT_EQ(segments_within(7, uniform(16)), std::nullopt);
  EXPECT_EQ(peak_bytes(recompute_segments("budget:1GB", uniform(16)), uniform(16)), 8);
}

TEST(RecomputePolicy, ReadsBudgets) {
  EXPECT_EQ(recompute_budget("budget:2KB"), 2000);
  EXPECT_EQ(recompute_budget("blocks"), std::nullopt);
}

TEST(RecomputePolicy, RefusesOtherTexts) {
  for (const char* text : {"", "all", "budget", "budget:", "budget:much", "budget:-1"}) {
    EXPECT_THROW(recompute_segments(text, uniform(2)), ConfigError) << text;
  }
}

}  // namespace
}  // namespace yoke::compute
