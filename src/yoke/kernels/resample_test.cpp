#include "yoke/kernels/resample.h"

#include <gtest/gtest.h>

#include <cmath>

#include "yoke/base/random.h"

namespace yoke::kernels {
namespace {

std::vector<uint8_t> noise(int width, int height) {
  Random random(7);
  std::vector<uint8_t> pixels(static_cast<size_t>(4 * width * height));
  for (uint8_t& value : pixels) value = static_cast<uint8_t>(random.below(256));
  return pixels;
}

// The definition, in both directions at once.
double slow(const std::vector<uint8_t>& pixels, int width, int height, const ResampleSpan& x,
            const ResampleSpan& y, int column, int row, int channel) {
  auto weight = [](const ResampleSpan& span, int at, int from) {
    const double scale = span.length / span.size, radius = std::max(1.0, scale);
    const double centre = span.first + (at + 0.5) * scale;
    if (from + 1 <= span.first || from >= span.first + span.length) return 0.0;
    return std::max(0.0, 1 - std::abs(from + 0.5 - centre) / radius);
  };
  double sum = 0, weights = 0;
  for (int v = 0; v < height; ++v)
    for (int u = 0; u < width; ++u) {
      const double w = weight(x, x.reversed ? x.size - 1 - column : column, u) * weight(y, row, v);
      sum += w * pixels[static_cast<size_t>(4 * (v * width + u) + channel)];
      weights += w;
    }
  return sum / weights;
}

void expect_as_defined(int width, int height, const ResampleSpan& x, const ResampleSpan& y) {
  const std::vector<uint8_t> pixels = noise(width, height);
  const auto count = static_cast<size_t>(x.size * y.size);
  std::vector<float> space, out(3 * count);
  float* const planes[3] = {out.data(), out.data() + count, out.data() + 2 * count};
  resample_rgbx({pixels.data(), width, height}, x, y, space, planes);
  for (int c = 0; c < 3; ++c)
    for (int row = 0; row < y.size; ++row)
      for (int column = 0; column < x.size; ++column)
        ASSERT_NEAR(planes[c][row * x.size + column], slow(pixels, width, height, x, y, column, row, c), 1e-3)
            << c << " " << row << " " << column;
}

TEST(Resample, MatchesItsDefinitionWhereItReducesAndEnlarges) {
  expect_as_defined(40, 30, {0, 40, 13}, {0, 30, 7});
  expect_as_defined(9, 7, {0, 9, 31}, {0, 7, 20});
  expect_as_defined(33, 21, {2.25, 20.5, 16}, {3.5, 17.25, 16});
}

TEST(Resample, TakesSpansAtTheEdgesAndSinglePixels) {
  expect_as_defined(33, 21, {12.75, 20.25, 5}, {20.5, 0.5, 4});
  expect_as_defined(1, 1, {0, 1, 3}, {0, 1, 2});
  expect_as_defined(2, 300, {0, 2, 1}, {0, 300, 1});
}

TEST(Resample, Mirrors) {
  expect_as_defined(20, 10, {1, 17, 8, true}, {0, 10, 8});
}

}  // namespace
}  // namespace yoke::kernels
