#include "yoke/models/common/layers.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace yoke::models {
namespace {

TEST(AverageTo, IsTheSameByMatrixProducts) {
  torch::manual_seed(1);
  for (auto [height, width, side] : {std::array<int64_t, 3>{8, 8, 6}, {13, 9, 7}, {3, 5, 7}, {12, 6, 6}}) {
    torch::Tensor x = torch::randn({2, 3, height, width}, torch::kDouble).requires_grad_();
    torch::Tensor weight = torch::randn({2, 3, side, side}, torch::kDouble);
    torch::Tensor expected = at::adaptive_avg_pool2d(x, {side, side});
    torch::Tensor found = average_by_products(x, side);
    EXPECT_TRUE(torch::allclose(found, expected)) << height << "x" << width << " to " << side;
    auto gradient = [&](const torch::Tensor& y) {
      return torch::autograd::grad({(y * weight).sum()}, {x})[0];
    };
    EXPECT_TRUE(torch::allclose(gradient(found), gradient(expected))) << height << "x" << width;
  }
}

}  // namespace
}  // namespace yoke::models
