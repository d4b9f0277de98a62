#include "yoke/kernels/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace yoke::kernels {
namespace {

std::vector<float> some_values(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(13 * i + 5));
  return x;
}

PoolShape shape_of(int64_t height, int64_t width, int64_t kernel, int64_t stride, int64_t padding) {
  PoolShape s{.height = height, .width = width, .kernel = kernel, .stride = stride, .padding = padding};
  s.out_height = (height + 2 * padding - kernel) / stride + 1;
  s.out_width = (width + 2 * padding - kernel) / stride + 1;
  return s;
}

TEST(MaxPoolPlanes, EqualsTheReferenceForEvenAndOddSizes) {
  for (bool relu : {false, true}) {
    for (auto [h, w] : {std::pair<int64_t, int64_t>{4, 4}, {28, 28}, {5, 7}, {2, 66}, {9, 3}}) {
      PoolShape s = shape_of(h, w, 2, 2, 0);
      std::vector<float> x = some_values(3 * h * w);
      x[1] = std::nanf("");
      size_t out = static_cast<size_t>(3 * s.out_height * s.out_width);
      std::vector<float> y(out), grad_y = some_values(static_cast<int64_t>(out)), grad_x(x.size(), 9.0f);
      std::vector<float> expected_grad(x.size(), 0.0f);
      std::vector<uint8_t> where(out);
      max_pool_planes(x.data(), y.data(), where.data(), 3, s, relu);
      max_pool_planes_backward(grad_y.data(), where.data(), grad_x.data(), 3, s);
      size_t at = 0;
      for (int64_t p = 0; p < 3; ++p) {
        for (int64_t i = 0; i < s.out_height; ++i) {
          for (int64_t j = 0; j < s.out_width; ++j, ++at) {
            uint8_t tap = 0;
            float value = reference::max_of_window(x.data() + p * h * w, s, i, j, relu, &tap);
            EXPECT_TRUE(y[at] == value || (std::isnan(y[at]) && std::isnan(value)));
            EXPECT_EQ(where[at], tap);
            if (tap == kNoTap) continue;
            expected_grad[static_cast<size_t>(p * h * w + (2 * i + tap / 2) * w + 2 * j + tap % 2)] =
                grad_y[at];
          }
        }
      }
      EXPECT_EQ(grad_x, expected_grad);
    }
  }
}

TEST(MaxPoolPixels, EqualsTheReferenceForEveryWindow) {
  for (auto [kernel, stride, padding] : {std::array<int64_t, 3>{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {3, 2, 0}}) {
    for (int64_t channels : {1, 5, 16, 40}) {
      PoolShape s = shape_of(7, 6, kernel, stride, padding);
      int64_t pixels = s.height * s.width, outputs = s.out_height * s.out_width;
      std::vector<float> x = some_values(2 * pixels * channels), grad_y = some_values(2 * outputs * channels);
      std::vector<float> y(grad_y.size()), grad_x(x.size(), 9.0f), expected_grad(x.size(), 0.0f);
      std::vector<uint8_t> where(y.size());
      max_pool_pixels(x.data(), y.data(), where.data(), 2, channels, s, /*relu=*/true);
      max_pool_pixels_backward(grad_y.data(), where.data(), grad_x.data(), 2, channels, s);
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t c = 0; c < channels; ++c) {
          std::vector<float> plane(static_cast<size_t>(pixels));
          for (int64_t i = 0; i < pixels; ++i)
            plane[static_cast<size_t>(i)] = x[static_cast<size_t>((n * pixels + i) * channels + c)];
          for (int64_t o = 0; o < outputs; ++o) {
            uint8_t tap = 0;
            int64_t i = o / s.out_width, j = o % s.out_width;
            float value = reference::max_of_window(plane.data(), s, i, j, /*relu=*/true, &tap);
            auto at = static_cast<size_t>((n * outputs + o) * channels + c);
            EXPECT_EQ(y[at], value);
            EXPECT_EQ(where[at], tap);
            if (tap == kNoTap) continue;
            int64_t row = i * stride + tap / kernel - padding, column = j * stride + tap % kernel - padding;
            expected_grad[static_cast<size_t>((n * pixels + row * s.width + column) * channels + c)] +=
                grad_y[at];
          }
        }
      }
      for (size_t i = 0; i < grad_x.size(); ++i) EXPECT_NEAR(grad_x[i], expected_grad[i], 1e-6);
    }
  }
}

}  // namespace
}  // namespace yoke::kernels
