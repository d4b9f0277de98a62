#include "yoke/compute/precision.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "yoke/base/error.h"
#include "yoke/compute/device_cuda.h"

namespace yoke {
namespace {

torch::ScalarType product_type() {
  torch::Tensor x = torch::ones({2, 2});
  return torch::mm(x, x).scalar_type();
}

TEST(Precision, NamesReadBack) {
  for (const char* name : {"fp32", "tf32", "bf16", "fp16"}) EXPECT_EQ(to_string(parse_precision(name)), name);
  EXPECT_THROW(parse_precision("fp8"), ConfigError);
}

TEST(AutocastGuard, LowersMatrixProductsAndKeepsReductions) {
  for (auto [precision, type] :
       {std::pair(Precision::kBf16, torch::kBFloat16), std::pair(Precision::kFp16, torch::kHalf)}) {
    AutocastGuard guard(torch::kCPU, precision);
    EXPECT_EQ(product_type(), type);
    EXPECT_EQ(torch::mse_loss(torch::ones({2}), torch::zeros({2})).scalar_type(), torch::kFloat);
  }
  EXPECT_EQ(product_type(), torch::kFloat);
}

TEST(AutocastGuard, NestsAndRestores) {
  {
    AutocastGuard outer(torch::kCPU, Precision::kBf16);
    {
      AutocastGuard inner(torch::kCPU, Precision::kFp32);
      EXPECT_EQ(product_type(), torch::kFloat);
    }
    EXPECT_EQ(product_type(), torch::kBFloat16);
    {
      AutocastGuard inner(torch::kCPU, Precision::kFp16);
      EXPECT_EQ(product_type(), torch::kHalf);
    }
    EXPECT_EQ(product_type(), torch::kBFloat16);
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
}

TEST(AutocastGuard, ForgetsCastWeightsAtItsEnd) {
  torch::Tensor weight = torch::ones({2, 2}).requires_grad_();
  auto product = [&] {
    AutocastGuard guard(torch::kCPU, Precision::kBf16);
    return torch::mm(torch::ones({1, 2}), weight)[0][0].item<float>();
  };
  EXPECT_EQ(product(), 2);
  {
    torch::NoGradGuard no_grad;
    weight.fill_(3);
  }
  EXPECT_EQ(product(), 6);
}

TEST(Tf32, IsRefusedWhereNoDeviceHasIt) {
  set_tf32(false);
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
  if (compute::cuda::has_tf32()) {
    set_tf32(true);
    EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
    set_tf32(false);
  } else {
    EXPECT_THROW(set_tf32(true), ConfigError);
  }
}

}  // namespace
}  // namespace yoke
