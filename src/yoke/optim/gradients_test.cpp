#include "yoke/optim/gradients.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "yoke/optim/clip.h"
#include "yoke/optim/finite.h"

namespace yoke::optim {
namespace {

torch::Tensor with_gradient(const torch::Tensor& gradient) {
  torch::Tensor parameter = torch::zeros(gradient.sizes(), gradient.scalar_type()).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

torch::Tensor absent() {
  return torch::zeros({4}).requires_grad_();
}

TEST(ClipGradNorm, ScalesAllGradientsTogether) {
  std::vector<torch::Tensor> parameters = {with_gradient(torch::tensor({3.0, 4.0}, torch::kDouble)), absent(),
                                           with_gradient(torch::tensor({{12.0}}, torch::kDouble))};
  torch::Tensor norm = clip_grad_norm(parameters, 6.5);
  EXPECT_DOUBLE_EQ(norm.item<double>(), 13);
  double factor = 6.5 / (13 + 1e-6);  // as torch.nn.utils.clip_grad_norm_
  EXPECT_DOUBLE_EQ(parameters[0].grad()[1].item<double>(), 4 * factor);
  EXPECT_DOUBLE_EQ(parameters[2].grad().item<double>(), 12 * factor);
  EXPECT_FALSE(parameters[1].grad().defined());
}

TEST(ClipGradNorm, LeavesSmallGradientsBitForBit) {
  torch::Tensor gradient = torch::rand({100});
  std::vector<torch::Tensor> parameters = {with_gradient(gradient.clone())};
  clip_grad_norm(parameters, 100);
  EXPECT_TRUE(parameters[0].grad().equal(gradient));
  clip_grad_norm(parameters, 0);  // only measures
  EXPECT_TRUE(parameters[0].grad().equal(gradient));
}

TEST(ClipGradNorm, MeasuresLowPrecisionInFp64) {
  std::vector<torch::Tensor> parameters = {with_gradient(torch::full({1000}, 0.5, torch::kBFloat16)),
                                           with_gradient(torch::full({24}, 0.5, torch::kFloat))};
  torch::Tensor norm = clip_grad_norm(parameters, 0);
  EXPECT_EQ(norm.scalar_type(), torch::kDouble);
  EXPECT_NEAR(norm.item<float>(), 16, 1e-5);
}

TEST(ClipGradNorm, IsFiniteWheneverGradientsAre) {
  std::vector<torch::Tensor> parameters = {with_gradient(torch::full({3, 70000}, 1e25f)),
                                           with_gradient(torch::full({7}, -3e38f)),
                                           with_gradient(torch::full({9}, 1e30, torch::kBFloat16))};
  double expected = std::sqrt(210000 * 1e50 + 7 * 9e76 + 9 * 1e60);
  EXPECT_NEAR(clip_grad_norm(parameters, 2).item<double>() / expected, 1, 1e-6);
  EXPECT_NEAR(clip_grad_norm(parameters, 0).item<double>(), 2, 1e-3);
  parameters.push_back(with_gradient(torch::full({2}, std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isinf(clip_grad_norm(parameters, 0).item<double>()));
}

TEST(ClipGradNorm, CountsRepeatedRowsOfASparseGradientOnce) {
  torch::Tensor sparse = torch::sparse_coo_tensor(torch::tensor({{1, 1}}), torch::tensor({1.0f, 2.0f}), {3});
  std::vector<torch::Tensor> parameters = {with_gradient(sparse)};
  EXPECT_FLOAT_EQ(clip_grad_norm(parameters, 1.5).item<float>(), 3);
  EXPECT_NEAR(parameters[0].grad().to_dense()[1].item<float>(), 1.5, 1e-5);
}

TEST(ClipGradNorm, OfNothingIsZero) {
  EXPECT_EQ(clip_grad_norm({}, 1).item<float>(), 0);
  EXPECT_EQ(clip_grad_norm({absent()}, 1).item<float>(), 0);
}

TEST(FirstNonFiniteGradient, NamesTheFirst) {
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<NamedTensor> parameters = {
        {"absent", absent()},
        {"large", with_gradient(torch::full({3}, 65504.0, torch::kHalf))},
        {"empty", with_gradient(torch::zeros({0}))},
        {"bad", with_gradient(torch::tensor({1.0f, bad, 2.0f}))},
        {"worse", with_gradient(torch::full({3}, bad))},
    };
    EXPECT_EQ(first_non_finite_gradient(parameters), "bad");
    parameters.resize(3);
    EXPECT_EQ(first_non_finite_gradient(parameters), std::nullopt);
  }
  EXPECT_EQ(first_non_finite_gradient({}), std::nullopt);
}

}  // namespace
}  // namespace yoke::optim
