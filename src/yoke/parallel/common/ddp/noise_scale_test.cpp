#include "yoke/parallel/common/ddp/noise_scale.h"

#include <gtest/gtest.h>

#include <random>

namespace yoke::parallel {
namespace {

TEST(NoiseScale, IsExactForExpectations) {
  NoiseScale noise;
  for (int i = 0; i < 3; ++i) noise.add(4.5 + 200.0 / 8, 4.5 + 200.0 / 64, 8, 64);
  ASSERT_TRUE(noise.value());
  EXPECT_NEAR(*noise.value(), 200 / 4.5, 1e-9);
}

TEST(NoiseScale, FindsTheNoiseOfDrawnGradients) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  constexpr int kSize = 50;
  NoiseScale noise;
  double sum = 0;
  int count = 0;
  for (int draw = 0; draw < 4000; ++draw) {
    double small = 0, big = 0;
    for (int i = 0; i < kSize; ++i) {
      double g_small = 0.3 + 2 / std::sqrt(8.0) * normal(random);
      double g_big = 0.3 + 2 / std::sqrt(64.0) * normal(random);
      small += g_small * g_small;
      big += g_big * g_big;
    }
    noise.add(small, big, 8, 64);
    if (draw > 200 && noise.value()) {
      sum += *noise.value();
      ++count;
    }
  }
  EXPECT_NEAR(sum / count, 200 / 4.5, 0.1 * 200 / 4.5);
}

TEST(NoiseScale, SaysNothingBeforeItKnows) {
  NoiseScale noise;
  EXPECT_FALSE(noise.value());
  noise.add(1, 2, 8, 8);
  noise.add(NAN, 2, 8, 64);
  EXPECT_FALSE(noise.value());
}

}  // namespace
}  // namespace yoke::parallel
