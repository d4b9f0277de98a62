#include "yoke/collab/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/random.h"

namespace yoke::collab {
namespace {

void average(std::vector<double>& values, const std::vector<std::vector<int>>& groups) {
  for (const auto& group : groups) {
    double sum = 0;
    for (int peer : group) sum += values[static_cast<size_t>(peer)];
    for (int peer : group) values[static_cast<size_t>(peer)] = sum / static_cast<double>(group.size());
  }
}

double variance(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return sum / count;
}

const auto kAllSum = [](int) { return true; };

std::vector<GridClass> singles(int peers) {
  std::vector<GridClass> classes;
  for (int i = 0; i < peers; ++i) classes.push_back({{i}, 1});
  return classes;
}

// Rounds until all have the mean; values as they then are. A receiver takes the mean of its group.
int average_all(std::vector<double>& values, std::vector<GridClass> classes, size_t size,
                const std::function<bool(int)>& sums, size_t& largest) {
  int rounds = 0;
  for (; classes.size() > 1; ++rounds) {
    const std::vector<GridBundle> bundles = grid_round(classes, size, sums);
    std::vector<int> seen(values.size());
    for (const GridBundle& bundle : bundles) {
      for (const GridGroup& group : bundle.groups) {
        double sum = 0, weights = 0;
        EXPECT_EQ(group.givers.size(), bundle.classes.size());
        for (size_t k = 0; k < group.givers.size(); ++k) {
          sum += classes[bundle.classes[k]].weight * values[static_cast<size_t>(group.givers[k])];
          weights += classes[bundle.classes[k]].weight;
        }
        std::vector<int> all = group.givers;
        all.insert(all.end(), group.receivers.begin(), group.receivers.end());
        EXPECT_TRUE(std::any_of(all.begin(), all.end(), sums));
        largest = std::max(largest, all.size());
        for (int peer : all) {
          values[static_cast<size_t>(peer)] = sum / weights;
          ++seen[static_cast<size_t>(peer)];
        }
      }
    }
    EXPECT_EQ(seen, std::vector<int>(values.size(), 1)) << "every peer is in one group of every round";
    classes = merged(classes, bundles);
  }
  return rounds;
}

TEST(Grid, AFullGridHasTheExactMeanAfterOneRoundPerAxis) {
  for (auto [side, axes] : {std::pair{4, 2}, {2, 4}, {3, 3}}) {
    int peers = 1;
    for (int i = 0; i < axes; ++i) peers *= side;
    std::vector<double> values(static_cast<size_t>(peers));
    std::iota(values.begin(), values.end(), 0.0);
    for (double& value : values) value *= 27;  // thirds are not exact in binary
    size_t largest = 0;
    EXPECT_EQ(average_all(values, singles(peers), static_cast<size_t>(side), kAllSum, largest), axes);
    EXPECT_EQ(variance(values), 0) << side << "^" << axes;
    EXPECT_EQ(values[0], 27 * (peers - 1) / 2.0);
    EXPECT_EQ(largest, static_cast<size_t>(side));
  }
}

TEST(Grid, AnyNumberOfPeersHasTheWeightedMean) {
  Random random(3);
  for (int peers = 1; peers < 40; ++peers) {
    for (int size : {2, 4, 5}) {
      std::vector<GridClass> classes = singles(peers);
      std::vector<double> values;
      double sum = 0, weights = 0;
      for (GridClass& one : classes) {
        one.weight = 1 + static_cast<double>(random.below(9));
        values.push_back(random.normal());
        sum += one.weight * values.back();
        weights += one.weight;
      }
      auto some = [](int peer) { return peer % 3 == 0; };
      size_t largest = 0;
      average_all(values, classes, static_cast<size_t>(size), some, largest);
      for (double value : values)
        EXPECT_NEAR(value, sum / weights, 1e-12) << peers << " in groups of " << size;
    }
  }
}

TEST(Grid, GroupsStaySmallIfAllCanSum) {
  for (int peers = 1; peers < 200; ++peers) {
    std::vector<double> values(static_cast<size_t>(peers));
    size_t largest = 0;
    average_all(values, singles(peers), 8, kAllSum, largest);
    EXPECT_LE(largest, 16u) << peers;
  }
}

// (r - 1) / (N - 1) for r groups of N peers, drawn without replacement.
TEST(Grid, OneRoundReducesTheVarianceAsTheorySays) {
  EXPECT_DOUBLE_EQ(variance_factor(4, 16), 0.2);
  double ratio = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    Random random(derive_seed(7, static_cast<uint64_t>(trial)));
    std::vector<double> values(16);
    for (double& value : values) value = random.normal();
    std::vector<GridClass> classes;
    for (int64_t peer : random_permutation(16, random.next()))
      classes.push_back({{static_cast<int>(peer)}, 1});
    const double before = variance(values);
    std::vector<std::vector<int>> groups;
    for (const GridBundle& bundle : grid_round(classes, 4, kAllSum))
      for (const GridGroup& group : bundle.groups) groups.push_back(group.givers);
    average(values, groups);
    ratio += variance(values) / before / kTrials;
  }
  EXPECT_NEAR(ratio, 0.2, 0.01);
}

TEST(Grid, ManyPeersAverageInTwoRounds) {
  EXPECT_EQ(chosen_group_size(0), 1u);
  EXPECT_EQ(chosen_group_size(7), 7u);
  EXPECT_EQ(chosen_group_size(kLargestGroup), kLargestGroup);
  for (size_t peers : {kLargestGroup + 1, size_t{100}, size_t{101}, size_t{1024}}) {
    const size_t side = chosen_group_size(peers);
    EXPECT_GE(side * side, peers);
    EXPECT_LT((side - 1) * (side - 1), peers);
    std::vector<GridClass> classes(peers);
    for (size_t i = 0; i < peers; ++i) classes[i].members = {static_cast<int>(i)};
    const auto sums = [](int) { return true; };
    int rounds = 0;
    for (; classes.size() > 1; ++rounds) classes = merged(classes, grid_round(classes, side, sums));
    EXPECT_EQ(rounds, 2) << peers;
  }
}

}  // namespace
}  // namespace yoke::collab
