// The CUDA layers beside LibTorch's on the CPU in fp64. Skipped where there is no GPU.
#include "yoke/compute/image_kernels.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <array>
#include <cmath>
#include <limits>

#include "yoke/kernels/cuda/have_kernels.h"

namespace yoke::compute {
namespace {

using torch::Tensor;

class ImageKernels : public ::testing::TestWithParam<torch::ScalarType> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !kernels::have_cuda_kernels()) GTEST_SKIP() << "no CUDA kernels here";
    torch::manual_seed(5);
  }
  // Of one rounding to the type, relative.
  double unit() const {
    return GetParam() == torch::kFloat ? 6e-8 : GetParam() == torch::kHalf ? 5e-4 : 4e-3;
  }
  // A leaf with channels last on the GPU, and the same numbers as a leaf in fp64 on the CPU.
  struct Pair {
    Tensor ours, exact;
  };
  Pair leaf(std::vector<int64_t> sizes, double scale = 1, double shift = 0) const {
    Tensor narrow = (torch::randn(sizes) * scale + shift).to(GetParam());
    Tensor ours = narrow.to(torch::kCUDA);
    if (sizes.size() == 4) ours = ours.contiguous(at::MemoryFormat::ChannelsLast);
    return {ours.requires_grad_(), narrow.to(torch::kDouble).requires_grad_()};
  }
  void expect_near(const Tensor& ours, const Tensor& exact, double roundings, const char* what) const {
    ASSERT_EQ(ours.sizes(), exact.sizes()) << what;
    double scale = std::max(1.0, exact.abs().max().item<double>());
    double far = (ours.cpu().to(torch::kDouble) - exact).abs().max().item<double>();
    EXPECT_LE(far, roundings * unit() * scale) << what;
  }
};

// What the model's layer computes, from LibTorch's operators.
Tensor exact_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor mean, Tensor variance,
                  const Tensor& residual, bool relu, bool training) {
  Tensor y = at::batch_norm(x, weight, bias, mean, variance, training, 0.1, 1e-5, false);
  if (residual.defined()) y = y + residual;
  return relu ? at::relu(y) : y;
}

struct NormCase {
  std::vector<int64_t> sizes;
  bool residual, relu;
};

TEST_P(ImageKernels, BatchNormEqualsLibTorch) {
  std::vector<NormCase> cases;
  for (auto sizes : std::vector<std::vector<int64_t>>{
           {2, 8, 1, 1}, {3, 48, 7, 5}, {5, 80, 13, 1}, {2, 2048, 3, 3}, {9, 64, 33, 31}})
    for (bool residual : {false, true})
      for (bool relu : {false, true}) cases.push_back({sizes, residual, relu});
  for (const NormCase& one : cases) {
    SCOPED_TRACE(::testing::Message()
                 << at::IntArrayRef(one.sizes) << " residual " << one.residual << " relu " << one.relu);
    int64_t channels = one.sizes[1];
    torch::nn::BatchNorm2d norm(channels);
    norm->weight.data().normal_();
    norm->bias.data().normal_();
    Tensor weight = norm->weight.detach().to(torch::kDouble).requires_grad_();
    Tensor bias = norm->bias.detach().to(torch::kDouble).requires_grad_();
    Tensor mean = norm->running_mean.to(torch::kDouble), variance = norm->running_var.to(torch::kDouble);
    norm->to(torch::kCUDA);
    Pair x = leaf(one.sizes, /*scale=*/2, /*shift=*/3);
    Pair residual = one.residual ? leaf(one.sizes) : Pair{};
    ASSERT_TRUE(cuda::can_batch_norm(*norm, x.ours, residual.ours));
    Tensor y = cuda::batch_norm(*norm, x.ours, residual.ours, one.relu, /*momentum=*/0.1);
    Tensor expected = exact_norm(x.exact, weight, bias, mean, variance, residual.exact, one.relu, true);
    expect_near(y, expected, 16, "y");
    // Where rounding decides what ReLU lets through, both sides take ours.
    Tensor grad = torch::randn(one.sizes).to(GetParam()).to(torch::kDouble);
    if (one.relu) grad = grad * ((y.cpu() > 0) == (expected > 0));
    expected.backward(grad);
    y.backward(grad.to(torch::kCUDA).to(GetParam()).contiguous(at::MemoryFormat::ChannelsLast));
    double rows = static_cast<double>(y.numel() / channels);
    expect_near(x.ours.grad(), x.exact.grad(), 16, "grad x");
    expect_near(norm->weight.grad(), weight.grad(), 4 * std::sqrt(rows), "grad weight");
    expect_near(norm->bias.grad(), bias.grad(), 4 * std::sqrt(rows), "grad bias");
    if (one.residual) expect_near(residual.ours.grad(), residual.exact.grad(), 2, "grad residual");
    EXPECT_TRUE(torch::allclose(norm->running_mean.cpu().to(torch::kDouble), mean, 1e-5, 1e-6));
    EXPECT_TRUE(torch::allclose(norm->running_var.cpu().to(torch::kDouble), variance, 1e-4, 1e-6));

    torch::NoGradGuard no_grad;
    norm->eval();
    expect_near(cuda::batch_norm(*norm, x.ours, residual.ours, one.relu, 0),
                exact_norm(x.exact, weight, bias, mean, variance, residual.exact, one.relu, false), 16,
                "evaluation");
  }
}

TEST_P(ImageKernels, BatchNormReadsTheGradientOfAPartOfAConcatenation) {
  torch::nn::BatchNorm2d norm(16);
  norm->to(torch::kCUDA);
  for (bool with_residual : {false, true})
    for (bool relu : {false, true}) {
      Pair x = leaf({3, 16, 5, 7}), residual = leaf({3, 16, 5, 7});
      Tensor whole = torch::randn({3, 40, 5, 7}, torch::kCUDA).to(GetParam());
      Tensor part = whole.contiguous(at::MemoryFormat::ChannelsLast).narrow(1, 8, 16);
      auto gradients = [&](const Tensor& grad) {
        for (const Tensor& one : {x.ours, residual.ours, norm->weight, norm->bias})
          one.mutable_grad() = Tensor();
        cuda::batch_norm(*norm, x.ours, with_residual ? residual.ours : Tensor(), relu, 0).backward(grad);
        return std::array{x.ours.grad(), norm->weight.grad(), norm->bias.grad()};
      };
      auto ours = gradients(part), expected = gradients(part.contiguous(at::MemoryFormat::ChannelsLast));
      for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::equal(ours[i], expected[i])) << i;
    }
}

TEST_P(ImageKernels, BatchNormGivesTheSameBitsTwiceAndKeepsNan) {
  torch::nn::BatchNorm2d norm(64);
  norm->to(torch::kCUDA);
  Pair x = leaf({4, 64, 29, 31});
  auto run = [&] {
    x.ours.mutable_grad() = Tensor();
    norm->weight.mutable_grad() = Tensor();
    cuda::batch_norm(*norm, x.ours, Tensor(), true, 0).square().sum().backward();
    return std::pair(x.ours.grad().clone(), norm->weight.grad().clone());
  };
  auto first = run(), second = run();
  EXPECT_TRUE(torch::equal(first.first, second.first));
  EXPECT_TRUE(torch::equal(first.second, second.second));

  torch::NoGradGuard no_grad;
  x.ours[1][5][7][7] = NAN;
  Tensor y = cuda::batch_norm(*norm, x.ours, Tensor(), true, 0);
  EXPECT_TRUE(y.select(1, 5).isnan().all().item<bool>());
  EXPECT_FALSE(y.select(1, 6).isnan().any().item<bool>());
}

TEST_P(ImageKernels, GradientsThatOthersReadAreNotOverwritten) {
  Pair x = leaf({2, 8, 6, 6}), weight = leaf({16, 8, 3, 3}, 0.2), bias = leaf({16});
  Tensor grad = torch::randn({2, 16, 6, 6}, torch::kCUDA).to(GetParam());
  grad = grad.contiguous(at::MemoryFormat::ChannelsLast);
  Tensor before = grad.clone();
  conv2d_relu(x.ours, weight.ours, bias.ours, {.padding = {1, 1}}).backward(grad);
  EXPECT_TRUE(torch::equal(grad, before));
  // Both layers get the same gradient: that of their sum.
  auto gradient_of_first = [&](bool shared) {
    x.ours.mutable_grad() = Tensor();
    Tensor first = conv2d_relu(x.ours, weight.ours, bias.ours, {.padding = {1, 1}});
    Tensor second = conv2d_relu(x.ours.detach(), weight.ours, bias.ours + 1, {.padding = {1, 1}});
    (shared ? first + second : first).mul(before).sum().backward();
    return x.ours.grad();
  };
  EXPECT_TRUE(torch::equal(gradient_of_first(true), gradient_of_first(false)));
}

TEST_P(ImageKernels, WhatIsNotChannelsLastOrAlignedIsLeftToLibTorch) {
  torch::nn::BatchNorm2d norm(8), odd(12);
  norm->to(torch::kCUDA);
  odd->to(torch::kCUDA);
  Pair x = leaf({2, 8, 4, 4});
  EXPECT_TRUE(cuda::can_batch_norm(*norm, x.ours, {}));
  EXPECT_FALSE(cuda::can_batch_norm(*norm, x.ours.contiguous(), {}));
  EXPECT_FALSE(cuda::can_batch_norm(*odd, leaf({2, 12, 4, 4}).ours, {}));
  EXPECT_FALSE(cuda::can_batch_norm(*norm, leaf({2, 16, 4, 4}).ours.narrow(1, 4, 8), {}));
  EXPECT_FALSE(cuda::can_batch_norm(*norm, leaf({1, 8, 1, 1}).ours, {}));
}

TEST_P(ImageKernels, MaxPoolEqualsLibTorch) {
  for (int64_t kernel : {2, 3})
    for (int64_t stride : {1, 2, 3})
      for (int64_t padding : {0, 1})
        for (bool relu_first : {false, true}) {
          Pair x = leaf({3, 24, 13, 10});
          Tensor y = relu_first ? relu_max_pool2d(x.ours, kernel, stride, padding)
                                : max_pool2d(x.ours, kernel, stride, padding);
          Tensor input = relu_first ? at::relu(x.exact) : x.exact;
          Tensor expected = at::max_pool2d(input, {kernel, kernel}, {stride, stride}, {padding, padding});
          expect_near(y, expected, 0.5, "y");
          Tensor grad = torch::randn_like(expected).to(GetParam()).to(torch::kDouble);
          expected.backward(grad);
          y.backward(grad.to(torch::kCUDA).to(GetParam()));
          expect_near(x.ours.grad(), x.exact.grad(), 2, "grad x");
        }
}

// Small whole numbers: every format holds the convolution's result exactly, so that all agree on the largest.
TEST_P(ImageKernels, MaxPoolKeepsNanAndMinusInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (auto [kernel, stride, padding] : {std::array<int64_t, 3>{3, 2, 1}, {2, 2, 0}, {3, 1, 1}, {5, 3, 2}}) {
    Tensor x = torch::full({2, 16, 9, 11}, -kInfinity);
    x[0][3][4][4] = std::nan("");
    x[1][5][0][0] = -2.0;
    x[1][6][8][10] = kInfinity;
    Tensor ours = x.to(torch::kCUDA, GetParam()).contiguous(at::MemoryFormat::ChannelsLast);
    Tensor y = max_pool2d(ours, kernel, stride, padding).cpu().to(torch::kFloat);
    Tensor expected = at::max_pool2d(x, {kernel, kernel}, {stride, stride}, {padding, padding});
    EXPECT_TRUE(y.isnan().equal(expected.isnan())) << kernel;
    EXPECT_TRUE(y.nan_to_num(7.0).equal(expected.nan_to_num(7.0))) << kernel;
  }
}

TEST_P(ImageKernels, ConvolutionWithReluAndPoolingEqualsLibTorch) {
  auto whole = [&](std::vector<int64_t> sizes) {
    Tensor numbers = torch::randint(-1, 2, sizes).to(GetParam());
    Tensor ours = numbers.to(torch::kCUDA);
    if (sizes.size() == 4) ours = ours.contiguous(at::MemoryFormat::ChannelsLast);
    return Pair{ours.requires_grad_(), numbers.to(torch::kDouble).requires_grad_()};
  };
  for (bool pool : {false, true}) {
    Pair x = whole({4, 8, 14, 12}), weight = whole({24, 8, 3, 3}), bias = whole({24});
    ConvShape shape{{1, 1}, {1, 1}};
    ASSERT_TRUE(cuda::can_conv_relu(x.ours, weight.ours, bias.ours));
    Tensor y = pool ? conv2d_relu_max_pool2d(x.ours, weight.ours, bias.ours, shape, 2, 2)
                    : conv2d_relu(x.ours, weight.ours, bias.ours, shape);
    Tensor expected = at::relu(at::conv2d(x.exact, weight.exact, bias.exact, {1, 1}, {1, 1}));
    if (pool) expected = at::max_pool2d(expected, {2, 2}, {2, 2});
    expect_near(y, expected, 0, "y");
    Tensor grad = torch::randint(-1, 2, expected.sizes()).to(torch::kDouble);
    expected.backward(grad);
    y.backward(grad.to(torch::kCUDA).to(GetParam()));
    expect_near(weight.ours.grad(), weight.exact.grad(), 4, "grad weight");
    expect_near(bias.ours.grad(), bias.exact.grad(), 4, "grad bias");
    expect_near(x.ours.grad(), x.exact.grad(), 4, "grad x");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ImageKernels,
                         ::testing::Values(torch::kFloat, torch::kBFloat16, torch::kHalf));

}  // namespace
}  // namespace yoke::compute
