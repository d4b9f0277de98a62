#include "yoke/compute/conv_blocks.h"

#include <gtest/gtest.h>

namespace yoke::compute {
namespace {

using torch::Tensor;

struct BlockCase {
  std::array<int64_t, 4> x, weight;
  ConvShape shape;
};

TEST(ConvBlocks, EqualTheStridedConvolutionAndItsWeightGradient) {
  torch::manual_seed(2);
  std::vector<BlockCase> cases = {{{2, 3, 32, 30}, {4, 3, 7, 7}, {{2, 2}, {3, 3}}},
                                  {{2, 3, 43, 47}, {5, 3, 11, 11}, {{4, 4}, {2, 2}}},
                                  {{1, 3, 15, 17}, {4, 3, 3, 3}, {{2, 2}, {0, 0}}},
                                  {{3, 1, 9, 9}, {2, 1, 2, 5}, {{3, 3}, {0, 1}}}};
  for (const BlockCase& one : cases) {
    Tensor x = torch::randn(one.x, torch::kDouble).contiguous(at::MemoryFormat::ChannelsLast);
    Tensor a = torch::randn(one.weight, torch::kDouble).requires_grad_(),
           b = a.detach().clone().requires_grad_();
    Blocked blocked = in_blocks(x, a, one.shape);
    EXPECT_EQ(blocked.x.size(1) % 8, 0);
    EXPECT_TRUE(blocked.x.is_contiguous(at::MemoryFormat::ChannelsLast));
    Tensor ours = at::conv2d(blocked.x, blocked.weight);
    Tensor theirs = at::conv2d(x, b, {}, one.shape.stride, one.shape.padding);
    ASSERT_EQ(ours.sizes(), theirs.sizes());
    EXPECT_TRUE(torch::allclose(ours, theirs, 1e-12, 1e-12));
    Tensor grad = torch::randn_like(theirs);
    ours.backward(grad);
    theirs.backward(grad);
    EXPECT_TRUE(torch::allclose(a.grad(), b.grad(), 1e-12, 1e-12));
  }
}

TEST(ConvBlocks, AreForCudaOnly) {
  Tensor x = torch::randn({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_FALSE(pays_in_blocks(x, torch::randn({4, 3, 3, 3}), {{2, 2}, {0, 0}}));
}

}  // namespace
}  // namespace yoke::compute
