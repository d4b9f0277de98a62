#include "yoke/data/formats/images/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::data {
namespace {

constexpr float kMeanColour[] = {0.485f, 0.456f, 0.406f}, kColourDeviation[] = {0.229f, 0.224f, 0.225f};

// Pixels (10 x, 20 y, 30).
Picture steps(Size size) {
  Picture picture{size, {}, {0, 0, static_cast<double>(size.width), static_cast<double>(size.height)}};
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      for (int value : {10 * x, 20 * y, 30, 99}) picture.pixels.push_back(static_cast<uint8_t>(value));
  return picture;
}

// Values from 0 to 255 again.
std::vector<float> rendered(const Picture& picture, const View& view, int side) {
  RenderSpace space;
  const auto count = static_cast<size_t>(side * side);
  std::vector<float> out(3 * count);
  render(picture, view, 3, side, space, out.data());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = 255 * (out[i] * kColourDeviation[i / count] + kMeanColour[i / count]);
  return out;
}

TEST(Render, KeepsAPictureOfTheRightSize) {
  const std::vector<float> planes = rendered(steps({4, 4}), {}, 4);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_NEAR(planes[i], 10.f * static_cast<float>(i % 4), 1e-3);
    EXPECT_NEAR(planes[16 + i], 20.f * static_cast<float>(i / 4), 1e-3);
    EXPECT_NEAR(planes[32 + i], 30, 1e-3);
  }
}

TEST(Render, Flips) {
  View view;
  view.flip = true;
  const std::vector<float> planes = rendered(steps({4, 4}), view, 4);
  EXPECT_NEAR(planes[0], 30, 1e-3);
  EXPECT_NEAR(planes[3], 0, 1e-3);
}

TEST(Render, MovesAndLeavesBlackBehind) {
  View view;
  view.shift_x = 1;
  view.shift_y = -2;
  const std::vector<float> planes = rendered(steps({4, 4}), view, 4);
  EXPECT_NEAR(planes[32 + 0], 0, 1e-3);          // left column
  EXPECT_NEAR(planes[32 + 4 * 3 + 2], 0, 1e-3);  // bottom rows
  EXPECT_NEAR(planes[16 + 1], 40, 1e-3);
}

TEST(Render, ChangesColoursAndStaysInRange) {
  View view;
  view.brightness = 2;
  EXPECT_NEAR(rendered(steps({4, 4}), view, 4)[32], 60, 1e-3);
  view = {};
  view.contrast = 0;  // everything becomes the mean grey
  const std::vector<float> grey = rendered(steps({4, 4}), view, 4);
  for (float value : grey) EXPECT_NEAR(value, 0.299f * 15 + 0.587f * 30 + 0.114f * 30, 1e-2);
  view = {};
  view.saturation = 0;
  const std::vector<float> faded = rendered(steps({4, 4}), view, 4);
  EXPECT_NEAR(faded[5], faded[16 + 5], 1e-3);
  EXPECT_NEAR(faded[5], 0.299f * 10 + 0.587f * 20 + 0.114f * 30, 1e-2);
  view.brightness = 100;
  for (float value : rendered(steps({4, 4}), view, 4)) EXPECT_LE(value, 255.01f);
}

TEST(Render, MakesGreyPicturesForModelsOfOneChannel) {
  RenderSpace space;
  std::vector<float> out(4);
  render(steps({2, 2}), {}, 1, 2, space, out.data());
  EXPECT_NEAR(out[3] * 0.226f + 0.449f, (0.299f * 10 + 0.587f * 20 + 0.114f * 30) / 255, 1e-5);
}

}  // namespace
}  // namespace yoke::data
