#include "yoke/kernels/conv_direct.h"

#include <gtest/gtest.h>

#include <cmath>

namespace yoke::kernels {
namespace {

std::vector<float> some_values(int64_t count, int step) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<float>(static_cast<size_t>(step) * i + 3));
  return x;
}

std::vector<PlaneShape> shapes() {
  return {{.channels = 1,
           .height = 28,
           .width = 28,
           .outputs = 6,
           .kernel_height = 5,
           .kernel_width = 5,
           .padding_height = 2,
           .padding_width = 2},
          {.channels = 6, .height = 14, .width = 14, .outputs = 16, .kernel_height = 5, .kernel_width = 5},
          {.channels = 3,
           .height = 5,
           .width = 41,
           .outputs = 9,
           .kernel_height = 3,
           .kernel_width = 3,
           .padding_height = 1,
           .padding_width = 1},
          {.channels = 2, .height = 4, .width = 3, .outputs = 1, .kernel_height = 1, .kernel_width = 2},
          {.channels = 1,
           .height = 2,
           .width = 2,
           .outputs = 3,
           .kernel_height = 2,
           .kernel_width = 2,
           .padding_height = 1,
           .padding_width = 0}};
}

std::vector<float> padded(const std::vector<float>& image, const PlaneShape& s) {
  std::vector<float> p(static_cast<size_t>(s.padded_size()), 99.0f);
  pad_planes(image.data(), p.data(), s);
  return p;
}

TEST(ConvolvePlanes, EqualsTheReference) {
  for (const PlaneShape& s : shapes()) {
    std::vector<float> x = some_values(s.channels * s.height * s.width, 7), w = some_values(s.weights(), 11);
    std::vector<float> bias = some_values(s.outputs, 5);
    std::vector<float> y(static_cast<size_t>(s.outputs * s.out_height() * s.out_width())), expected(y.size());
    convolve_planes(padded(x, s).data(), w.data(), bias.data(), y.data(), s);
    reference::convolve(x.data(), w.data(), bias.data(), expected.data(), s);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-5);
  }
}

TEST(ConvolvePlanes, WithTheTransposedShapeIsTheAdjoint) {
  for (const PlaneShape& s : shapes()) {
    std::vector<float> x = some_values(s.channels * s.height * s.width, 7), w = some_values(s.weights(), 11);
    std::vector<float> y(static_cast<size_t>(s.outputs * s.out_height() * s.out_width()));
    std::vector<float> g = some_values(static_cast<int64_t>(y.size()), 3), back(x.size()), wt(w.size());
    reference::convolve(x.data(), w.data(), nullptr, y.data(), s);
    transpose_weight(w.data(), wt.data(), s);
    PlaneShape t = s.transposed();
    convolve_planes(padded(g, t).data(), wt.data(), nullptr, back.data(), t);
    double forward = 0, backward = 0;
    for (size_t i = 0; i < y.size(); ++i) forward += static_cast<double>(y[i]) * g[i];
    for (size_t i = 0; i < x.size(); ++i) backward += static_cast<double>(x[i]) * back[i];
    EXPECT_NEAR(forward, backward, 1e-4 * (1 + std::abs(forward)));
  }
}

TEST(WeightGradient, AddsUpImagesAsTheReferenceDoes) {
  for (const PlaneShape& s : shapes()) {
    WeightGradient collected(s);
    std::vector<double> expected(static_cast<size_t>(s.weights()));
    for (int image = 0; image < 3; ++image) {
      std::vector<float> x = some_values(s.channels * s.height * s.width, 7 + image);
      std::vector<float> g = some_values(s.outputs * s.out_height() * s.out_width(), 3 + image);
      collected.add(padded(x, s).data(), g.data());
      reference::weight_gradient(x.data(), g.data(), expected.data(), s);
    }
    std::vector<float> grad(expected.size(), 1.0f);
    collected.add_to(grad.data());
    for (size_t i = 0; i < grad.size(); ++i) EXPECT_NEAR(grad[i], 1 + expected[i], 2e-4);
  }
}

}  // namespace
}  // namespace yoke::kernels
