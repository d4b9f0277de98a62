#include "yoke/collab/grid.h"

#include <gtest/gtest.h>

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

TEST(Grid, AFullGridHasTheExactMeanAfterOneRoundPerAxis) {
  for (auto [side, axes] : {std::pair{4, 2}, {2, 4}, {3, 3}}) {
    int peers = 1;
    for (int i = 0; i < axes; ++i) peers *= side;
    std::vector<GridPlace> places = grid_places(peers, side, axes);
    std::vector<double> values(static_cast<size_t>(peers));
    std::iota(values.begin(), values.end(), 0.0);
    if (side == 3) {  // thirds are not exact in binary
      for (double& value : values) value *= 27;
    }
    for (int round = 0; round < axes; ++round) {
      auto groups = grid_groups(places);
      for (const auto& group : groups) EXPECT_EQ(group.size(), static_cast<size_t>(side));
      average(values, groups);
      advance_places(places, groups);
    }
    EXPECT_EQ(variance(values), 0) << side << "^" << axes;
  }
}

TEST(Grid, EveryPeerIsInOneGroupOfEveryRound) {
  std::vector<GridPlace> places = grid_places(11, 4, 2);
  for (int round = 0; round < 5; ++round) {
    auto groups = grid_groups(places);
    std::vector<int> seen(11);
    for (const auto& group : groups)
      for (int peer : group) ++seen[static_cast<size_t>(peer)];
    EXPECT_EQ(seen, std::vector<int>(11, 1));
    advance_places(places, groups);
  }
}

TEST(Grid, RandomGroupsReduceTheVarianceAsTheorySays) {
  EXPECT_DOUBLE_EQ(variance_factor(4, 16), 0.2);
  double ratio = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    Random random(derive_seed(7, static_cast<uint64_t>(trial)));
    std::vector<double> values(16);
    for (double& value : values) value = random.normal();
    std::vector<int64_t> order = random_permutation(16, random.next());
    std::vector<std::vector<int>> groups(4);
    for (size_t i = 0; i < 16; ++i) groups[i / 4].push_back(static_cast<int>(order[i]));
    const double before = variance(values);
    average(values, groups);
    ratio += variance(values) / before / kTrials;
  }
  EXPECT_NEAR(ratio, 0.2, 0.01);
}

}  // namespace
}  // namespace yoke::collab
