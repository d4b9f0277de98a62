#include "yoke/kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace yoke::kernels {
namespace {

std::vector<float> spread(size_t count, float low, float high) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i)
    x[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(count);
  return x;
}

TEST(Gelu, EqualsItsReferenceOverTheWholeRangeAndAtEveryTail) {
  for (size_t count : {1u, 7u, 16u, 31u, 1000u}) {
    std::vector<float> x = spread(count, -12, 12), y(count), slope(count), ones(count, 1.0f);
    gelu(x.data(), y.data(), static_cast<int64_t>(count));
    gelu_backward(x.data(), ones.data(), slope.data(), static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(y[i], reference::gelu(x[i]), 1e-6 + 1e-6 * std::abs(x[i])) << x[i];
      EXPECT_NEAR(slope[i], reference::gelu_slope(x[i]), 2e-6) << x[i];
    }
  }
}

TEST(Gelu, KeepsNanAndHandlesHugeValues) {
  std::vector<float> x = {std::nanf(""), 1e30f, -1e30f, 0.0f}, y(4);
  gelu(x.data(), y.data(), 4);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 1e30f);
  EXPECT_NEAR(y[2], 0, 1e-6);
  EXPECT_EQ(y[3], 0);
}

TEST(BiasGelu, AddsTheBiasOfItsColumnAndKeepsTheValueBefore) {
  std::vector<float> z = spread(3 * 21, -3, 3), before = z, bias = spread(21, -1, 1), y(z.size());
  bias_gelu(z.data(), bias.data(), y.data(), 3, 21);
  for (size_t i = 0; i < z.size(); ++i) {
    EXPECT_EQ(z[i], before[i] + bias[i % 21]);
    EXPECT_NEAR(y[i], reference::gelu(z[i]), 2e-6);
  }
}

TEST(AddBias, CutsAtZeroOnlyWithRelu) {
  for (bool relu : {false, true}) {
    std::vector<float> y = spread(2 * 19, -2, 2), before = y, bias = spread(19, -1, 1);
    y[3] = before[3] = std::nanf("");
    add_bias(y.data(), bias.data(), 2, 19, relu);
    EXPECT_TRUE(std::isnan(y[3]));
    for (size_t i = 4; i < y.size(); ++i) {
      float sum = before[i] + bias[i % 19];
      EXPECT_EQ(y[i], relu ? std::max(sum, 0.0f) : sum);
    }
  }
}

TEST(ReluBackward, PassesWhatReluPassed) {
  std::vector<float> y = {0, 1, 0, 2, std::nanf("")}, grad = {1, 2, 3, 4, 5};
  relu_backward(y.data(), grad.data(), grad.data(), 5);
  EXPECT_EQ(grad, (std::vector<float>{0, 2, 0, 4, 5}));
}

TEST(ColumnSums, SumsEveryColumnOfAPitchedMatrix) {
  for (int64_t width : {1, 15, 16, 33, 70}) {
    int64_t rows = 9, pitch = width + 3;
    std::vector<float> x = spread(static_cast<size_t>(rows * pitch), -1, 1), sums(static_cast<size_t>(width));
    column_sums(x.data(), sums.data(), rows, width, pitch);
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += x[static_cast<size_t>(r * pitch + c)];
      EXPECT_NEAR(sums[static_cast<size_t>(c)], sum, 1e-5);
    }
  }
}

}  // namespace
}  // namespace yoke::kernels
