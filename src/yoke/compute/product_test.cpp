// Products of layers beside LibTorch's in fp64, on the CPU and, where there is one, on the GPU.
#include "yoke/compute/product.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "yoke/compute/determinism.h"

namespace yoke::compute {
namespace {

using torch::Tensor;

class Products : public ::testing::TestWithParam<std::tuple<torch::DeviceType, torch::ScalarType>> {
 protected:
  void SetUp() override {
    if (device() == torch::kCUDA && !torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
    torch::manual_seed(7);
  }
  static torch::DeviceType device() { return std::get<0>(GetParam()); }
  static torch::ScalarType type() { return std::get<1>(GetParam()); }

  Tensor draw(std::vector<int64_t> sizes) const { return torch::randn(sizes).to(device(), type()); }
  Tensor transposed(int64_t rows, int64_t columns) const { return draw({columns, rows}).t(); }

  static Tensor exact(const Tensor& x) { return x.to(torch::kCPU, torch::kDouble); }

  // Sums of `inner` products: one rounding of the result, and of z where GELU follows.
  void expect_near(const Tensor& ours, const Tensor& expected) const {
    ASSERT_EQ(ours.sizes(), expected.sizes());
    ASSERT_EQ(ours.scalar_type(), type());
    double unit = type() == torch::kFloat ? 2e-6 : type() == torch::kHalf ? 1e-3 : 8e-3;
    double scale = std::max(1.0, expected.abs().max().item<double>());
    EXPECT_LE((exact(ours) - expected).abs().max().item<double>(), 2 * unit * scale);
  }
};

TEST_P(Products, EqualLibTorchForBothOrdersOfBothOperands) {
  // 7 x 9 x 5 is for nobody's fast path.
  for (auto [rows, inner, columns] : {std::array<int64_t, 3>{64, 32, 48}, {8, 256, 8}, {7, 9, 5}}) {
    for (const Tensor& left : {draw({rows, inner}), transposed(rows, inner)})
      for (const Tensor& right : {draw({inner, columns}), transposed(inner, columns)})
        expect_near(product(left, right), at::mm(exact(left), exact(right)));
  }
}

TEST_P(Products, TakeWhatIsNotDense) {
  Tensor left = draw({32, 64}).narrow(1, 8, 16), right = draw({16, 80}).narrow(1, 16, 24);
  expect_near(product(left, right), at::mm(exact(left), exact(right)));
}

TEST_P(Products, AddBiasAndResidual) {
  for (auto [rows, inner, columns] : {std::array<int64_t, 3>{64, 32, 48}, {7, 9, 5}}) {
    Tensor left = draw({rows, inner}), right = draw({inner, columns}), bias = draw({columns}),
           added = draw({rows, columns});
    Tensor expected = at::mm(exact(left), exact(right)) + exact(bias);
    expect_near(product_plus(left, right, bias, {}), expected);
    Tensor before = added.clone();
    expect_near(product_plus(left, right, bias, added), expected + exact(added));
    EXPECT_TRUE(torch::equal(added, before));
  }
}

TEST_P(Products, KeepWhatGeluWasTakenOf) {
  for (auto [rows, inner, columns] : {std::array<int64_t, 3>{64, 32, 48}, {7, 9, 5}}) {
    Tensor left = draw({rows, inner}), right = draw({inner, columns}), bias = draw({columns});
    Tensor z = at::mm(exact(left), exact(right)) + exact(bias);
    GeluOfProduct ours = product_gelu(left, right, bias);
    expect_near(ours.z, z);
    expect_near(ours.y, at::gelu(z, "tanh"));
  }
}

TEST_P(Products, AreTakenThroughTheSlopeOfGelu) {
  for (auto [rows, inner, columns] : {std::array<int64_t, 3>{64, 32, 48}, {8, 256, 8}, {7, 9, 5}}) {
    Tensor left = draw({rows, inner}), right = transposed(inner, columns), z = draw({rows, columns}) * 3;
    Tensor ours = product_gelu_slope(left, right, z);
    if (!ours.defined()) continue;  // no library does it for these
    expect_near(ours, at::gelu_backward(at::mm(exact(left), exact(right)), exact(z), "tanh"));
  }
}

TEST_P(Products, RepeatTheirBitsOnceChosen) {
  Tensor left = draw({128, 64}), right = draw({64, 256});
  EXPECT_TRUE(torch::equal(product(left, right), product(left, right)));
  set_deterministic(true);
  EXPECT_TRUE(torch::equal(product(left, right), at::mm(left, right)));
  set_deterministic(false);
}

INSTANTIATE_TEST_SUITE_P(Types, Products,
                         ::testing::Combine(::testing::Values(torch::kCPU, torch::kCUDA),
                                            ::testing::Values(torch::kFloat, torch::kBFloat16,
                                                              torch::kHalf)));

}  // namespace
}  // namespace yoke::compute
