#include "yoke/collab/falsify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace yoke::collab {
namespace {

using ::testing::ElementsAre;

std::vector<float> falsified(fault::Effect effect, std::vector<float> gradient, uint64_t seed = 1) {
  falsify(effect, seed, gradient);
  return gradient;
}

TEST(Falsify, EachLieIsWhatItsNameSays) {
  EXPECT_THAT(falsified(fault::Effect::kFlip, {1, -2}), ElementsAre(-1, 2));
  EXPECT_THAT(falsified(fault::Effect::kScale, {1, -2}), ElementsAre(100, -200));
  EXPECT_THAT(falsified(fault::Effect::kCorrupt, {1, -2}), ElementsAre(-100, 200));
  EXPECT_THAT(falsified(fault::Effect::kDrift, {3, -3}), ElementsAre(33, 27));
  EXPECT_THAT(falsified(fault::Effect::kNone, {1, -2}), ElementsAre(1, -2));
}

TEST(Falsify, NoiseHasItsOwnSeedAndNothingOfTheGradientButItsSize) {
  const std::vector<float> ones(1000, 1.0f);
  const std::vector<float> noise = falsified(fault::Effect::kNoise, ones, 1);
  double sum = 0, squares = 0;
  for (float value : noise) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(std::sqrt(squares / 1000), 30, 3);
  EXPECT_LT(std::abs(sum / 1000), 5);
  EXPECT_NE(noise, falsified(fault::Effect::kNoise, ones, 2));
}

TEST(Falsify, AGradientOfZerosStaysOne) {
  for (auto effect : {fault::Effect::kFlip, fault::Effect::kNoise, fault::Effect::kDrift})
    EXPECT_THAT(falsified(effect, {0, 0}), ElementsAre(0, 0));
}

}  // namespace
}  // namespace yoke::collab
