#include "yoke/compute/recompute_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

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
  for (int bytes = 17; bytes >= 7; --bytes) {
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
  EXPECT_EQ(segments_within(6, uniform(16)), std::nullopt);
  EXPECT_EQ(peak_bytes(recompute_segments("budget:1GB", uniform(16)), uniform(16)), 7);
}

TEST(RecomputePolicy, KeepsEverythingThatTheBytesAllow) {
  // Twelve equal blocks and a head as large as five of them, as in a language model.
  std::vector<BlockCost> blocks(12, {67, 5});
  blocks.push_back({330, 5});
  const int64_t least = peak_bytes(recompute_segments("blocks", blocks), blocks);
  for (int more = 0; more < 12; ++more) {
    auto segments = segments_within(least + 67 * more, blocks).value();
    EXPECT_GE(kept_blocks(segments), static_cast<size_t>(1 + more));
    EXPECT_LE(peak_bytes(segments, blocks), least + 67 * more);
    EXPECT_EQ(segments.size(), segments.front().recompute ? segments.size() : 1) << "the last ones are kept";
  }
}

// Against all 2^n choices of blocks with all cuts of the rest.
TEST(RecomputePolicy, NoOtherCutKeepsMore) {
  Random random(3);
  for (int turn = 0; turn < 30; ++turn) {
    const size_t n = 2 + random.below(5);
    std::vector<BlockCost> blocks(n);
    for (BlockCost& one : blocks)
      one = {static_cast<int64_t>(1 + random.below(20)), static_cast<int64_t>(1 + random.below(4))};
    // Each block: recomputed in the segment before it, in a new one, or kept.
    std::map<size_t, int64_t> best;  // by kept blocks
    auto total = static_cast<int>(std::pow(3, n));
    for (int code = 0; code < total; ++code) {
      std::vector<Segment> segments;
      for (size_t i = 0, rest = static_cast<size_t>(code); i < n; ++i, rest /= 3) {
        bool keep = rest % 3 == 2, joins = rest % 3 == 0;
        if (!segments.empty() && segments.back().recompute == !keep && (joins || keep))
          segments.back().end = i + 1;
        else
          segments.push_back({i, i + 1, !keep});
      }
      if (segments.back().recompute) continue;
      int64_t peak = peak_bytes(segments, blocks);
      auto [place, is_new] = best.try_emplace(kept_blocks(segments), peak);
      place->second = std::min(place->second, peak);
    }
    for (const auto& [kept, peak] : best) {
      EXPECT_EQ(peak_bytes(segments_keeping(kept, blocks), blocks), peak);
      EXPECT_EQ(kept_blocks(segments_keeping(kept, blocks)), kept);
      EXPECT_GE(kept_blocks(segments_within(peak, blocks).value()), kept);
    }
  }
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
