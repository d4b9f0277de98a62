// The CUDA cross entropy beside LibTorch's on the CPU in fp64. Skipped where there is no GPU.
#include "yoke/compute/fused_loss.h"
#include "yoke/compute/loss_factor.h"
#include "yoke/kernels/cuda/have_kernels.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cmath>

#include "yoke/kernels/cuda/cross_entropy.h"

namespace yoke::compute {
namespace {

using torch::Tensor;

class FusedLoss : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !kernels::have_cuda_kernels()) GTEST_SKIP() << "no CUDA kernels here";
    torch::manual_seed(5);
  }
};

struct Shape {
  int64_t rows, classes, stride;
};

// Narrow rows, rows that fit into shared memory (GPT-2's) and rows that do not; padded and not; fewer and
// more rows than the GPU has blocks.
constexpr Shape kShapes[] = {{5, 13, 16},       {33, 8191, 8192},    {3, 16384, 16384},
                             {1, 50257, 50304}, {700, 50257, 50304}, {2, 65536, 65536}};

void expect_libtorchs_loss(torch::ScalarType type, double tolerance, double relative) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << type << " " << shape.rows << " x " << shape.classes);
    Tensor logits = (3 * torch::randn({shape.rows, shape.stride})).to(type);
    Tensor target = torch::randint(shape.classes, {shape.rows});
    target[0] = shape.classes - 1;
    Tensor exact = logits.narrow(1, 0, shape.classes).to(torch::kDouble).requires_grad_();
    Tensor expected = at::cross_entropy_loss(exact, target);
    expected.backward();
    Tensor ours = logits.to(torch::kCUDA).requires_grad_();
    ASSERT_TRUE(can_fuse_loss(ours));
    Tensor loss = fused_loss(ours, target.to(torch::kCUDA), shape.classes);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5 * std::fabs(expected.item<double>()));
    Tensor gradient = ours.grad().cpu().to(torch::kDouble) * static_cast<double>(shape.rows);
    Tensor wanted = exact.grad() * static_cast<double>(shape.rows);
    EXPECT_LE((gradient.narrow(1, 0, shape.classes) - wanted).abs().max().item<double>(), tolerance);
    // Small probabilities too: relative to each.
    Tensor far = (gradient.narrow(1, 0, shape.classes) - wanted).abs() / (wanted.abs() + 1e-30);
    EXPECT_LE(far.max().item<double>(), relative);
    EXPECT_TRUE(gradient.narrow(1, shape.classes, shape.stride - shape.classes).eq(0).all().item<bool>());
  }
}

TEST_F(FusedLoss, AndItsGradientEqualLibTorch) {
  expect_libtorchs_loss(torch::kBFloat16, 4e-3, 2e-2);
  expect_libtorchs_loss(torch::kFloat, 1e-5, 1e-4);
}

// fp16: gradients are written as large as backward() wants them; another factor than the expected is right
// too.
TEST_F(FusedLoss, OfFp16HasTheExpectedFactorInItsGradient) {
  for (const Shape& shape : kShapes) {
    for (double actual : {4096.0, 1024.0}) {
      SCOPED_TRACE(::testing::Message() << shape.rows << " x " << shape.classes << ", factor " << actual);
      Tensor logits = (2 * torch::randn({shape.rows, shape.stride})).to(torch::kHalf);
      Tensor target = torch::randint(shape.classes, {shape.rows});
      Tensor exact = logits.narrow(1, 0, shape.classes).to(torch::kDouble).requires_grad_();
      (at::cross_entropy_loss(exact, target) * actual).backward();
      Tensor ours = logits.to(torch::kCUDA).requires_grad_();
      EXPECT_FALSE(can_fuse_loss(ours));
      const ExpectedLossFactor expected(
          torch::full({}, 4096.0, torch::TensorOptions(torch::kCUDA).dtype(torch::kFloat)));
      ASSERT_TRUE(can_fuse_loss(ours));
      Tensor loss = fused_loss(ours, target.to(torch::kCUDA), shape.classes);
      (loss * actual).backward();
      Tensor gradient = ours.grad().cpu().to(torch::kDouble);
      // Relative to each, but for what fp16 cannot represent.
      Tensor far = (gradient.narrow(1, 0, shape.classes) - exact.grad()).abs() - 2e-3 * exact.grad().abs();
      EXPECT_LE(far.max().item<double>(), 1e-7);
      EXPECT_TRUE(gradient.narrow(1, shape.classes, shape.stride - shape.classes).eq(0).all().item<bool>());
    }
  }
}

TEST_F(FusedLoss, IsNanForATargetOutsideAndForNanLogitsInTheirRowsOnly) {
  constexpr int64_t kClasses = 50257, kStride = 50304;
  Tensor logits = torch::randn({4, kStride}).to(torch::kBFloat16);
  logits[2][77] = std::nan("");
  Tensor target = torch::tensor({int64_t{0}, kClasses, int64_t{3}, int64_t{4}});
  Tensor on_gpu = logits.to(torch::kCUDA), losses = torch::empty({4}, torch::kCUDA),
         ids = target.to(torch::kCUDA);
  kernels::cross_entropy({kernels::CudaNumber::kBf16, on_gpu.data_ptr(), ids.data_ptr<int64_t>(),
                          losses.data_ptr<float>(), 4, kClasses, kStride});
  Tensor is_nan = losses.cpu().isnan();
  EXPECT_FALSE(is_nan[0].item<bool>());
  EXPECT_TRUE(is_nan[1].item<bool>());
  EXPECT_TRUE(is_nan[2].item<bool>());
  EXPECT_FALSE(is_nan[3].item<bool>());
  EXPECT_FALSE(on_gpu[3].isnan().any().item<bool>());
  EXPECT_TRUE(on_gpu[1].narrow(0, kClasses, kStride - kClasses).eq(0).all().item<bool>());
}

TEST_F(FusedLoss, OfLogitsThatAreMinusInfinityOrFarApart) {
  Tensor logits = torch::full({2, 50304}, -300.0).to(torch::kBFloat16);
  logits.narrow(1, 40000, 10304).fill_(-std::numeric_limits<float>::infinity());
  logits[0][12345] = 300;
  Tensor target = torch::tensor({int64_t{12345}, int64_t{17}});
  Tensor ours = logits.to(torch::kCUDA).requires_grad_();
  Tensor loss = fused_loss(ours, target.to(torch::kCUDA), 50257);
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), std::log(40000.0) / 2, 1e-4);
  EXPECT_FALSE(ours.grad().isnan().any().item<bool>());
}

}  // namespace
}  // namespace yoke::compute
