#include "yoke/kernels/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace yoke::kernels {
namespace {

std::vector<float> wide_values(int64_t count, int step) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = 3 * std::sin(static_cast<float>(static_cast<size_t>(step) * i + 2)) + 1;
  return x;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << i;
}

struct Case {
  int64_t rows, width, pitch;
  bool relu, residual, affine;
};

class BatchNorm : public ::testing::TestWithParam<Case> {};

TEST_P(BatchNorm, ForwardAndBackwardEqualTheReference) {
  Case c = GetParam();
  int64_t count = c.rows * c.pitch;
  std::vector<float> x = wide_values(count, 7), residual = wide_values(count, 5),
                     grad_y = wide_values(count, 3);
  std::vector<float> weight = wide_values(c.width, 11), bias = wide_values(c.width, 13);
  BatchNormInput in{.x = x.data(), .rows = c.rows, .width = c.width, .pitch = c.pitch, .relu = c.relu};
  if (c.residual) in.residual = residual.data();
  if (c.affine) in.weight = weight.data(), in.bias = bias.data();

  auto floats = static_cast<size_t>(count);
  auto columns = static_cast<size_t>(c.width);
  std::vector<float> y(floats), expected_y(floats), mean(columns), inverse(columns), variance(columns);
  batch_norm(in, y.data(), mean.data(), inverse.data(), variance.data());
  reference::batch_norm(in, expected_y.data());
  expect_near(y, expected_y, 3e-6);

  std::vector<float> gx(floats), gr(floats), gw(columns), gb(columns), ex(floats), er(floats), ew(columns),
      eb(columns);
  BatchNormGradients g{.grad_y = grad_y.data(),
                       .y = y.data(),
                       .mean = mean.data(),
                       .inverse = inverse.data(),
                       .grad_x = gx.data(),
                       .grad_residual = c.residual ? gr.data() : nullptr,
                       .grad_weight = gw.data(),
                       .grad_bias = gb.data()};
  batch_norm_backward(in, g);
  g.grad_x = ex.data(), g.grad_weight = ew.data(), g.grad_bias = eb.data();
  if (c.residual) g.grad_residual = er.data();
  reference::batch_norm_backward(in, g);
  expect_near(gx, ex, 1e-5);
  expect_near(gr, er, 1e-6);
  expect_near(gw, ew, 1e-5);
  expect_near(gb, eb, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchNorm,
                         ::testing::Values(Case{2, 1, 1, false, false, true},
                                           Case{5, 16, 16, true, false, true},
                                           Case{70, 33, 40, true, true, true},
                                           Case{129, 5, 5, false, true, false},
                                           Case{200, 48, 64, true, true, false}));

TEST(BatchNormStatistics, AreExactForALargeMeanAndASmallSpread) {
  std::vector<float> x(1000), y(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1000.0f + (i % 2 == 0 ? 0.25f : -0.25f);
  float mean = 0, inverse = 0, variance = 0;
  batch_norm({.x = x.data(), .rows = 1000, .width = 1, .pitch = 1, .eps = 0}, y.data(), &mean, &inverse,
             &variance);
  EXPECT_EQ(mean, 1000.0f);
  EXPECT_EQ(variance, 0.0625f);
  EXPECT_EQ(inverse, 4.0f);
}

}  // namespace
}  // namespace yoke::kernels
