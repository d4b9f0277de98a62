#include "yoke/data/formats/images/view.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace yoke::data {
namespace {

TEST(TrainingView, DependsOnItsSeedAlone) {
  for (const char* kind : {"imagenet", "cifar"}) {
    const Augmentation augmentation{kind, 0.4};
    Random one(5), same(5), other(6);
    const View view = training_view(augmentation, {500, 375}, 224, one);
    EXPECT_EQ(view, training_view(augmentation, {500, 375}, 224, same));
    EXPECT_NE(view, training_view(augmentation, {500, 375}, 224, other));
  }
}

TEST(TrainingView, OfImageNetTakesRegionsOfEverySizeWithinThePicture) {
  Random random(1);
  double least = 1, most = 0;
  int flips = 0;
  for (int i = 0; i < 2000; ++i) {
    const View view = training_view({"imagenet", 0}, {500, 375}, 224, random);
    const Region& region = view.region;
    EXPECT_GE(region.x, 0);
    EXPECT_GE(region.y, 0);
    EXPECT_LE(region.x + region.width, 500);
    EXPECT_LE(region.y + region.height, 375);
    const double area = region.width * region.height / (500 * 375), ratio = region.width / region.height;
    EXPECT_GT(ratio, 0.73);
    EXPECT_LT(ratio, 1.36);
    least = std::min(least, area);
    most = std::max(most, area);
    flips += view.flip ? 1 : 0;
  }
  EXPECT_LT(least, 0.1);
  EXPECT_GT(most, 0.9);
  EXPECT_NEAR(flips, 1000, 150);
}

TEST(TrainingView, TakesTheMiddleOfVeryNarrowPictures) {
  Random random(1);
  for (const Size size : {Size{1, 1}, {3000, 2}, {2, 3000}}) {
    const Region region = training_view({"imagenet", 0}, size, 224, random).region;
    EXPECT_GT(region.width, 0);
    EXPECT_GT(region.height, 0);
    EXPECT_LE(region.x + region.width, size.width);
    EXPECT_LE(region.y + region.height, size.height);
  }
}

TEST(TrainingView, OfCifarMovesByUpToFourOf32Pixels) {
  Random random(2);
  int least = 0, most = 0;
  for (int i = 0; i < 500; ++i) {
    const View view = training_view({"cifar", 0}, {32, 32}, 32, random);
    EXPECT_EQ(view.region, (Region{0, 0, 32, 32}));
    least = std::min({least, view.shift_x, view.shift_y});
    most = std::max({most, view.shift_x, view.shift_y});
  }
  EXPECT_EQ(least, -4);
  EXPECT_EQ(most, 4);
}

TEST(TrainingView, ChangesColoursByAtMostTheJitter) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const View view = training_view({"none", 0.3}, {10, 10}, 8, random);
    for (float factor : {view.brightness, view.contrast, view.saturation}) {
      EXPECT_GE(factor, 0.7f);
      EXPECT_LE(factor, 1.3f);
    }
  }
}

TEST(TestView, IsTheCentre) {
  EXPECT_EQ(test_view({"none", 0.4}, {50, 30}).region, (Region{10, 0, 30, 30}));
  EXPECT_EQ(test_view({"imagenet", 0}, {256, 512}).region, (Region{16, 144, 224, 224}));
  EXPECT_FALSE(test_view({"imagenet", 0}, {256, 512}).flip);
}

TEST(Mixup, DrawsFromASymmetricDistribution) {
  Random random(4);
  for (double alpha : {0.2, 1.0, 8.0}) {
    double sum = 0, squares = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      const double share = draw_mixup(alpha, random);
      ASSERT_GE(share, 0);
      ASSERT_LE(share, 1);
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    EXPECT_NEAR(sum / kDraws, 0.5, 0.02) << alpha;
    EXPECT_NEAR(squares / kDraws, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;  // the variance of Beta
  }
}

}  // namespace
}  // namespace yoke::data
