#include "yoke/collab/robust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke::collab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Vector = std::vector<float>;

Vector combined(Robust robust, const std::vector<Vector>& vectors, std::vector<double> weights = {},
                int suspects = 0) {
  std::vector<Contribution> all;
  for (size_t i = 0; i < vectors.size(); ++i) all.push_back({vectors[i], weights.empty() ? 1 : weights[i]});
  Vector result(vectors[0].size());
  combine(robust, all, suspects, result);
  return result;
}

double distance(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

TEST(Robust, TheMeanIsWeightedBySamples) {
  EXPECT_THAT(combined(Robust::kNone, {{1, 2}, {4, 8}}, {3, 1}), ElementsAre(1.75f, 3.5f));
  EXPECT_THAT(combined(Robust::kNone, {{1, 2}, {NAN, NAN}}, {3, 0}), ElementsAre(1, 2));
  EXPECT_THAT(combined(Robust::kNone, {{1, 2}}, {0}), ElementsAre(0, 0));
}

TEST(Robust, IdenticalVectorsStayAsTheyAre) {
  for (const std::string& name : robust_names())
    EXPECT_THAT(combined(parse_robust(name), {{1, -2}, {1, -2}, {1, -2}, {1, -2}}, {1, 2, 4, 1}, 1),
                ElementsAre(1, -2))
        << name;
}

TEST(Robust, ClippingShortensToTheMedianNorm) {
  EXPECT_THAT(combined(Robust::kClip, {{1}, {1}, {100}}), ElementsAre(1));
}

TEST(Robust, TheMedianIgnoresAMinority) {
  EXPECT_THAT(combined(Robust::kMedian, {{1, 5}, {2, -1e30f}, {3, 6}}), ElementsAre(2, 5));
  EXPECT_THAT(combined(Robust::kMedian, {{1}, {2}, {3}, {100}}), ElementsAre(2.5f));
}

TEST(Robust, KrumReturnsOneOfTheVectorsThatAgree) {
  EXPECT_THAT(combined(Robust::kKrum, {{50}, {1}, {1.1f}, {0.9f}, {-70}}, {}, 2), ElementsAre(1));
}

// 10 peers of which 3 lie: the mean of the honest ones is approximated, where the plain mean is far off.
TEST(Robust, ThreeLiarsOfTenDoNotMoveTheResultFar) {
  constexpr size_t kLength = 200;
  Random random(3);
  Vector truth(kLength);
  for (float& value : truth) value = static_cast<float>(random.normal());
  const auto liar_of = [&](int kind) {
    Vector lie(kLength);
    for (size_t i = 0; i < kLength; ++i)
      lie[i] = kind == 0   ? -10 * truth[i]
               : kind == 1 ? static_cast<float>(30 * random.normal())
                           : 100 * truth[i];
    return lie;
  };
  for (int kind = 0; kind < 3; ++kind) {
    std::vector<Vector> vectors;
    for (int peer = 0; peer < 7; ++peer) {
      Vector own = truth;
      for (float& value : own) value += 0.3f * static_cast<float>(random.normal());
      vectors.push_back(own);
    }
    for (int peer = 0; peer < 3; ++peer) vectors.push_back(liar_of(kind));
    const double size = distance(truth, Vector(kLength));
    EXPECT_GT(distance(combined(Robust::kNone, vectors), truth), 0.9 * size) << kind;
    for (Robust robust : {Robust::kCenteredClip, Robust::kMedian, Robust::kKrum})
      EXPECT_LT(distance(combined(robust, vectors, {}, 3), truth), 0.45 * size) << to_string(robust) << kind;
    EXPECT_LT(distance(combined(Robust::kClip, vectors), truth), 0.75 * size) << kind;
  }
}

TEST(Robust, ScoresNameTheOutlier) {
  std::vector<Vector> vectors = {{1}, {1.1f}, {0.9f}, {40}};
  std::vector<Contribution> all(vectors.begin(), vectors.end());
  std::vector<double> scores = outlier_scores(all, Vector{1});
  EXPECT_GT(scores[3], 100);
  EXPECT_LT(scores[1], 3);
}

TEST(Robust, AnUnknownNameListsTheAcceptedOnes) {
  EXPECT_THAT([] { parse_robust("mean"); },
              ThrowsMessage<ConfigError>(HasSubstr("none, clip, centered_clip, median, krum")));
}

}  // namespace
}  // namespace yoke::collab
