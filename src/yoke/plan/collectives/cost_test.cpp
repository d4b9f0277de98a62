#include <gtest/gtest.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {
namespace {

constexpr LinkCost kLink{.alpha = 1e-5, .beta = 1 / 12.5e9};

double all_reduce(Algorithm algorithm, int size, int64_t bytes) {
  return predict_seconds(Collective::kAllReduce, algorithm, size, bytes, kLink);
}

TEST(CollectiveCost, RingAndTreeTakeWhatTheReferenceSays) {
  EXPECT_NEAR(all_reduce(Algorithm::kRing, 8, 1 << 20), 0.00028680064, 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::kTree, 8, 1 << 20), 0.00022777216, 1e-12);
}

TEST(CollectiveCost, RingOvertakesTheTreeAtTheReferencesSize) {
  // S* = N alpha (N - 1 - ceil(log2 N)) / beta = 4.0 MB.
  EXPECT_LT(all_reduce(Algorithm::kTree, 8, 3'999'999), all_reduce(Algorithm::kRing, 8, 3'999'999));
  EXPECT_GT(all_reduce(Algorithm::kTree, 8, 4'000'001), all_reduce(Algorithm::kRing, 8, 4'000'001));
}

TEST(CollectiveCost, EveryFormHasAPriceAndOneRankPaysNothing) {
  for (int i = 0; i <= static_cast<int>(Collective::kBarrier); ++i) {
    auto op = static_cast<Collective>(i);
    for (Algorithm algorithm : algorithms_for(op)) {
      EXPECT_EQ(predict_seconds(op, algorithm, 1, 1000, kLink), 0);
      EXPECT_GT(predict_seconds(op, algorithm, 6, 1000, kLink, 3), 0);
    }
  }
}

// Those that send one message at a time are compared by their prediction; direct and star, which send many at
// once, may be taken although the prediction, one message at a time, is worse.
TEST(CollectiveCost, TheChosenOneIsTheFastestOfItsKind) {
  for (int i = 0; i <= static_cast<int>(Collective::kBarrier); ++i) {
    auto op = static_cast<Collective>(i);
    for (int size : {1, 2, 3, 5, 8, 13, 64}) {
      for (int64_t bytes : {0, 1000, 1'000'000, 1'000'000'000}) {
        Algorithm taken = choose_algorithm(op, size, bytes, kLink);
        double chosen = predict_seconds(op, taken, size, bytes, kLink);
        auto many_at_once = [](Algorithm one) {
          return one == Algorithm::kDirect || one == Algorithm::kExchange || one == Algorithm::kStar ||
                 one == Algorithm::kSummation;
        };
        bool many = many_at_once(taken);
        for (Algorithm algorithm : algorithms_for(op)) {
          // An exchange is left to small arrays.
          bool other_kind =
              (!many && many_at_once(algorithm)) || (algorithm == Algorithm::kExchange && bytes > 64 << 10);
          if (other_kind || algorithm == Algorithm::kHierarchical) continue;  // there are no machines
          double other = predict_seconds(op, algorithm, size, bytes, kLink);
          EXPECT_LE(chosen, other * (many ? 2 : 1)) << to_string(op) << ' ' << size << ' ' << bytes;
        }
      }
    }
  }
}

TEST(CollectiveCost, DirectWinsWhereLatencyCountsAndRingWhereBandwidthDoes) {
  auto choice = [](Collective op, int64_t bytes) { return choose_algorithm(op, 3, bytes, kLink); };
  for (Collective op : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    Algorithm smallest = op == Collective::kAllReduce ? Algorithm::kExchange : Algorithm::kDirect;
    EXPECT_EQ(choice(op, 1 << 10), smallest) << to_string(op);
    EXPECT_EQ(choice(op, 128 << 10), Algorithm::kDirect) << to_string(op);
    EXPECT_EQ(choice(op, 64 << 20), Algorithm::kRing) << to_string(op);
  }
}

TEST(CollectiveCost, ChoiceFollowsSizeAndRanks) {
  auto choice = [](int size, int64_t bytes, int machine = 1) {
    return choose_algorithm(Collective::kAllReduce, size, bytes, kLink, machine);
  };
  EXPECT_EQ(choice(2, 1 << 20), Algorithm::kDirect);
  EXPECT_EQ(choice(8, 64 << 10), Algorithm::kHalvingDoubling);
  EXPECT_EQ(choice(13, 1 << 30), Algorithm::kRing);
  EXPECT_EQ(choice(8, 1 << 30), Algorithm::kHalvingDoubling);  // as few bytes as the ring, fewer rounds
  EXPECT_EQ(choice(13, 16 << 10), Algorithm::kTree);
  EXPECT_EQ(choice(12, 1 << 26, 4), Algorithm::kHierarchical);
  EXPECT_EQ(choice(1, 1 << 26), Algorithm::kDirect);
}

TEST(CollectiveCost, AnExchangeSavesARoundAndPaysInBytes) {
  for (int size = 2; size <= 17; ++size) {
    double n = size;
    EXPECT_NEAR(all_reduce(Algorithm::kExchange, size, 1 << 10), (n - 1) * (1e-5 + 1024 / 12.5e9), 1e-12);
    EXPECT_LE(all_reduce(Algorithm::kExchange, size, 64), all_reduce(Algorithm::kDirect, size, 64));
  }
  EXPECT_GT(all_reduce(Algorithm::kExchange, 8, 1 << 20), all_reduce(Algorithm::kDirect, 8, 1 << 20));
  auto choice = [](int size, int64_t bytes) {
    return choose_algorithm(Collective::kAllReduce, size, bytes, kLink);
  };
  for (int size : {2, 3, 4, 8, 13}) EXPECT_EQ(choice(size, 1 << 10), Algorithm::kExchange) << size;
  EXPECT_EQ(choice(2, 64 << 10), Algorithm::kExchange);
  EXPECT_EQ(choice(2, (64 << 10) + 4), Algorithm::kDirect);
  EXPECT_NE(choice(64, 1 << 10), Algorithm::kExchange);  // 63 messages are no single round any more
}

TEST(CollectiveCost, RefusesWhatMakesNoSense) {
  EXPECT_THROW(predict_seconds(Collective::kAllToAll, Algorithm::kRing, 4, 10, kLink), ConfigError);
  EXPECT_THROW(predict_seconds(Collective::kAllReduce, Algorithm::kRing, 0, 10, kLink), ConfigError);
  EXPECT_THROW(predict_seconds(Collective::kAllReduce, Algorithm::kRing, 4, -1, kLink), ConfigError);
  EXPECT_THROW(predict_seconds(Collective::kAllReduce, Algorithm::kHierarchical, 4, 10, kLink, 3),
               ConfigError);
  EXPECT_THROW(choose_algorithm(Collective::kAllReduce, -3, 10, kLink), ConfigError);
}

}  // namespace
}  // namespace yoke::plan
