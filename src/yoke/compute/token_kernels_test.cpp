// The CUDA layers of language models beside LibTorch's on the CPU in fp64. Skipped where there is no GPU.
#include "yoke/compute/token_kernels.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>

#include "yoke/compute/mlp.h"
#include "yoke/kernels/cuda/have_kernels.h"

namespace yoke::compute {
namespace {

using torch::Tensor;

class TokenKernels : public ::testing::TestWithParam<torch::ScalarType> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !kernels::have_cuda_kernels()) GTEST_SKIP() << "no CUDA kernels here";
    torch::manual_seed(5);
  }
  struct Pair {
    Tensor ours, exact;
  };
  Pair leaf(std::vector<int64_t> sizes, double scale = 1, double shift = 0) const {
    Tensor narrow = (torch::randn(sizes) * scale + shift).to(GetParam());
    return {narrow.to(torch::kCUDA).requires_grad_(), narrow.to(torch::kDouble).requires_grad_()};
  }
  void expect_near(const Tensor& ours, const Tensor& exact, double roundings, const char* what) const {
    ASSERT_EQ(ours.sizes(), exact.sizes()) << what;
    double unit = GetParam() == torch::kFloat ? 6e-8 : GetParam() == torch::kHalf ? 5e-4 : 4e-3;
    double scale = std::max(1.0, exact.abs().max().item<double>());
    double far = (ours.cpu().to(torch::kDouble) - exact).abs().max().item<double>();
    EXPECT_LE(far, roundings * unit * scale) << what;
  }
};

TEST_P(TokenKernels, LayerNormAndItsResidualEqualLibTorch) {
  for (int64_t width : {8, 256, 768, 776, 1280, 1600, 2048}) {
    for (bool with_added : {false, true}) {
      SCOPED_TRACE(::testing::Message() << width << (with_added ? " added" : ""));
      // With an added residual also more rows than blocks: each takes several in turn.
      const int64_t rows = with_added ? 1900 : 11;
      Pair x = leaf({3, rows, width}, 2, 1), added = leaf({3, rows, width}), weight = leaf({width}),
           bias = leaf({width});
      Tensor more = with_added ? added.ours : Tensor();
      ASSERT_TRUE(cuda::can_add_layer_norm(x.ours, more, weight.ours, bias.ours));
      Normed ours = add_layer_norm(x.ours, more, weight.ours, bias.ours, 1e-5);
      Tensor sum = with_added ? x.exact + added.exact : x.exact;
      Tensor y = at::layer_norm(sum, {width}, weight.exact, bias.exact, 1e-5);
      expect_near(ours.sum, sum, 1, "sum");
      expect_near(ours.y, y, 8, "y");
      Tensor of_sum = torch::randn_like(sum).to(GetParam()).to(torch::kDouble);
      Tensor of_y = torch::randn_like(y).to(GetParam()).to(torch::kDouble);
      auto on_gpu = [&](const Tensor& t) { return t.to(torch::kCUDA).to(GetParam()); };
      torch::autograd::backward({sum, y}, {of_sum, of_y});
      torch::autograd::backward({ours.sum, ours.y}, {on_gpu(of_sum), on_gpu(of_y)});
      expect_near(x.ours.grad(), x.exact.grad(), 8, "grad x");
      if (with_added) expect_near(added.ours.grad(), added.exact.grad(), 8, "grad added");
      expect_near(weight.ours.grad(), weight.exact.grad(), 8, "grad weight");
      expect_near(bias.ours.grad(), bias.exact.grad(), 8, "grad bias");
    }
  }
}

TEST_P(TokenKernels, LayerNormWhoseSumOrNormIsNotUsedHasItsGradient) {
  Pair x = leaf({5, 64}), weight = leaf({64}), bias = leaf({64});
  layer_norm(x.ours, weight.ours, bias.ours, 1e-5).sum().backward();
  at::layer_norm(x.exact, {64}, weight.exact, bias.exact, 1e-5).sum().backward();
  expect_near(x.ours.grad(), x.exact.grad(), 8, "norm only");
  x.ours.mutable_grad() = Tensor();
  add_layer_norm(x.ours, {}, weight.ours, bias.ours, 1e-5).sum.sum().backward();
  EXPECT_TRUE(x.ours.grad().eq(1).all().item<bool>());
}

TEST_P(TokenKernels, LinearWithGeluEqualsLibTorch) {
  Pair x = leaf({7, 9, 48}), weight = leaf({48, 72}, 0.2), bias = leaf({72});
  ASSERT_TRUE(cuda::can_affine_gelu(x.ours, weight.ours, bias.ours));
  Tensor y = linear_transposed_gelu(x.ours, weight.ours, bias.ours);
  Tensor expected = at::gelu(at::matmul(x.exact, weight.exact) + bias.exact, "tanh");
  expect_near(y, expected, 16, "y");
  Tensor grad = torch::randn_like(expected).to(GetParam()).to(torch::kDouble);
  expected.backward(grad);
  y.backward(grad.to(torch::kCUDA).to(GetParam()));
  expect_near(x.ours.grad(), x.exact.grad(), 16, "grad x");
  expect_near(weight.ours.grad(), weight.exact.grad(), 16, "grad weight");
  expect_near(bias.ours.grad(), bias.exact.grad(), 16, "grad bias");
}

TEST_P(TokenKernels, TwoLayersWithGeluBetweenEqualLibTorch) {
  for (int64_t rows : {5, 640}) {
    Pair x = leaf({2, rows, 48}), up = leaf({48, 72}, 0.2), up_bias = leaf({72}), down = leaf({72, 40}, 0.2),
         down_bias = leaf({40}), added = leaf({2, rows, 40});
    const MlpWeights weights{up.ours, up_bias.ours, down.ours, down_bias.ours};
    ASSERT_TRUE(cuda::can_mlp(x.ours, weights, added.ours));
    Tensor y = mlp_add(x.ours, weights, added.ours);
    Tensor inner = at::gelu(at::matmul(x.exact, up.exact) + up_bias.exact, "tanh");
    Tensor expected = at::matmul(inner, down.exact) + down_bias.exact + added.exact;
    expect_near(y, expected, 32, "y");
    Tensor grad = torch::randn_like(expected).to(GetParam()).to(torch::kDouble);
    expected.backward(grad);
    y.backward(grad.to(torch::kCUDA).to(GetParam()));
    expect_near(x.ours.grad(), x.exact.grad(), 32, "grad x");
    expect_near(up.ours.grad(), up.exact.grad(), 32, "grad up");
    expect_near(up_bias.ours.grad(), up_bias.exact.grad(), 32, "grad of its bias");
    expect_near(down.ours.grad(), down.exact.grad(), 32, "grad down");
    expect_near(down_bias.ours.grad(), down_bias.exact.grad(), 32, "grad of its bias");
    expect_near(added.ours.grad(), added.exact.grad(), 1, "grad added");
  }
}

TEST_P(TokenKernels, HeadsAreTakenApartAndTheirGradientsPacked) {
  Tensor packed = torch::randn({2, 5, 3 * 32}).to(GetParam()).to(torch::kCUDA).requires_grad_();
  Tensor same = packed.detach().clone().requires_grad_();
  ASSERT_TRUE(cuda::can_split_heads(packed, 4));
  auto ours = split_heads(packed, 4);
  std::vector<Tensor> theirs;
  for (const Tensor& part : same.split(32, 2)) theirs.push_back(part.view({2, 5, 4, 8}).transpose(1, 2));
  std::vector<Tensor> grads;
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(torch::equal(ours[i], theirs[i]));
    // In the layouts that attention may give back: as it got it, and by heads.
    Tensor grad = torch::randn_like(theirs[i]);
    grads.push_back(i == 1 ? grad.contiguous() : grad);
  }
  torch::autograd::backward({ours[0], ours[1], ours[2]}, grads);
  torch::autograd::backward(theirs, grads);
  EXPECT_TRUE(torch::equal(packed.grad(), same.grad()));
}

TEST_P(TokenKernels, HeadsOfALinearLayerHaveItsGradients) {
  for (int64_t tokens : {5, 700}) {
    Pair x = leaf({2, tokens, 48}), weight = leaf({48, 3 * 32}, 0.2), bias = leaf({3 * 32});
    ASSERT_TRUE(cuda::can_affine_heads(x.ours, weight.ours, bias.ours, 4));
    auto ours = linear_split_heads(x.ours, weight.ours, bias.ours, 4);
    Tensor packed = at::matmul(x.exact, weight.exact) + bias.exact;
    std::vector<Tensor> exact, grads, grads_on_gpu;
    for (const Tensor& part : packed.split(32, 2))
      exact.push_back(part.view({2, tokens, 4, 8}).transpose(1, 2));
    for (size_t i = 0; i < 3; ++i) {
      expect_near(ours[i], exact[i], 16, "q, k or v");
      Tensor grad = torch::randn_like(exact[i]).to(GetParam());
      grads.push_back(grad.to(torch::kDouble));
      grads_on_gpu.push_back((i == 1 ? grad.contiguous() : grad).to(torch::kCUDA));
    }
    torch::autograd::backward(exact, grads);
    torch::autograd::backward({ours[0], ours[1], ours[2]}, grads_on_gpu);
    expect_near(x.ours.grad(), x.exact.grad(), 16, "grad x");
    expect_near(weight.ours.grad(), weight.exact.grad(), 16, "grad weight");
    expect_near(bias.ours.grad(), bias.exact.grad(), 16, "grad bias");
  }
}

TEST_P(TokenKernels, LinearPlusAResidualHasTheGradientsOfBoth) {
  Pair x = leaf({7, 8, 48}), weight = leaf({48, 72}, 0.2), bias = leaf({72}), added = leaf({7, 8, 72});
  Tensor y = linear_transposed_add(x.ours, weight.ours, bias.ours, added.ours);
  Tensor expected = at::matmul(x.exact, weight.exact) + bias.exact + added.exact;
  expect_near(y, expected, 16, "y");
  Tensor grad = torch::randn_like(expected).to(GetParam()).to(torch::kDouble);
  expected.backward(grad);
  y.backward(grad.to(torch::kCUDA).to(GetParam()));
  expect_near(x.ours.grad(), x.exact.grad(), 16, "grad x");
  expect_near(weight.ours.grad(), weight.exact.grad(), 16, "grad weight");
  expect_near(bias.ours.grad(), bias.exact.grad(), 16, "grad bias");
  expect_near(added.ours.grad(), added.exact.grad(), 1, "grad added");
}

// The norm's backward pass leaves the column sums of its gradient (kept_sums.h).
TEST_P(TokenKernels, ALinearLayerHasItsBiasGradientBehindANormToo) {
  for (int64_t width : {72, 768, 1600}) {
    SCOPED_TRACE(width);
    Pair x = leaf({3, 8, 48}), weight = leaf({48, width}, 0.2), bias = leaf({width});
    Pair slope = leaf({width}), shift = leaf({width});
    Normed ours =
        add_layer_norm(linear_transposed(x.ours, weight.ours, bias.ours), {}, slope.ours, shift.ours, 1e-5);
    Tensor sum = at::matmul(x.exact, weight.exact) + bias.exact;
    Tensor y = at::layer_norm(sum, {width}, slope.exact, shift.exact, 1e-5);
    Tensor of_sum = torch::randn_like(sum).to(GetParam()), of_y = torch::randn_like(y).to(GetParam());
    torch::autograd::backward({sum, y}, {of_sum.to(torch::kDouble), of_y.to(torch::kDouble)});
    torch::autograd::backward({ours.sum, ours.y}, {of_sum.to(torch::kCUDA), of_y.to(torch::kCUDA)});
    expect_near(bias.ours.grad(), bias.exact.grad(), 16, "grad bias");
    expect_near(weight.ours.grad(), weight.exact.grad(), 16, "grad weight");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TokenKernels,
                         ::testing::Values(torch::kFloat, torch::kBFloat16, torch::kHalf));

}  // namespace
}  // namespace yoke::compute
