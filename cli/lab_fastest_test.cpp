#include "cli/lab_fastest.h"

#include <gtest/gtest.h>

#include <cmath>

#include "yoke/plan/collectives/steps.h"

namespace yoke::cli {
namespace {

constexpr int kRanks = 8;
constexpr plan::LinkCost kLink{.alpha = 20e-6, .beta = 1e-9, .gamma = 0};

double seconds(plan::Algorithm algorithm, double bytes) {
  return plan::predict_seconds(plan::Collective::kAllReduce, algorithm, kRanks, static_cast<int64_t>(bytes),
                               kLink);
}

report::Series curve(plan::Algorithm algorithm, double factor) {
  report::Series series{.name = plan::to_string(algorithm)};
  for (double bytes = 256; bytes < 1e9; bytes *= factor)
    series.points.push_back({bytes, seconds(algorithm, bytes)});
  return series;
}

// A tree takes 2hα + 2Sβ with h hops, a ring 2(N-1)(α + S/N β): they are equal at S = (N - 1 - h) N α / β.
TEST(Fastest, CrossesWhereThePredictionsAreEqual) {
  constexpr double kFactor = 1.1;
  const std::vector<report::Series> curves = {curve(plan::Algorithm::kRing, kFactor),
                                              curve(plan::Algorithm::kTree, kFactor)};
  const std::vector<Fastest> found = fastest_of(curves);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "tree");
  EXPECT_EQ(found[1].name, "ring");
  const double hops = (seconds(plan::Algorithm::kTree, 0)) / (2 * kLink.alpha);
  const double crossing = (kRanks - 1 - hops) * kLink.alpha * kRanks / kLink.beta;
  EXPECT_NEAR(seconds(plan::Algorithm::kRing, crossing), seconds(plan::Algorithm::kTree, crossing), 1e-8);
  EXPECT_GE(found[1].from, crossing);
  EXPECT_LE(found[1].from, crossing * kFactor);
  EXPECT_DOUBLE_EQ(found[1].seconds, seconds(plan::Algorithm::kRing, found[1].from));
}

TEST(Fastest, OneCurveIsTheFastestFromItsStart) {
  const std::vector<Fastest> found = fastest_of({curve(plan::Algorithm::kRing, 10)});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].from, 256);
  EXPECT_TRUE(fastest_of({}).empty());
}

}  // namespace
}  // namespace yoke::cli
