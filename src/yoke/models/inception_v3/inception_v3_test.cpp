#include "yoke/models/inception_v3/inception_v3.h"

#include <gtest/gtest.h>

#include <cmath>

#include "yoke/models/inception_v3/mixed.h"
#include "yoke/models/test_batch.h"

namespace yoke::models {
namespace {

TEST(InceptionV3, HasAnAuxiliaryLossInTrainingOnly) {
  torch::NoGradGuard no_grad;
  Model model = build({.name = "inception_v3", .classes = 5, .image_size = 75});
  TestBatch batch = make_test_batch(model.sample, 2);
  Tensors training = model.forward(batch.inputs);
  ASSERT_EQ(training.size(), 2);
  auto cross_entropy = [&](const torch::Tensor& logits) {
    return at::cross_entropy_loss(logits, batch.target);
  };
  torch::Tensor expected = cross_entropy(training[0]) + 0.4 * cross_entropy(training[1]);
  EXPECT_TRUE(torch::allclose(model.loss(training, batch.target), expected));

  model.module->eval();
  Tensors evaluation = model.forward(batch.inputs);
  ASSERT_EQ(evaluation.size(), 1);
  EXPECT_TRUE(torch::allclose(model.loss(evaluation, batch.target), cross_entropy(evaluation[0])));
}

TEST(InceptionV3, PoolsBehindTheConvolutionWithThePapersResult) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  std::shared_ptr<Mixed> mixed = make_mixed_e(32);
  mixed->eval();
  torch::Tensor x = torch::randn({2, 32, 8, 8});
  torch::Tensor weight = mixed->named_parameters()["branch_pool.conv.weight"].normal_();
  torch::Tensor pooled = at::conv2d(at::avg_pool2d(x, {3, 3}, {1, 1}, {1, 1}), weight);
  torch::Tensor expected = at::relu(pooled / std::sqrt(1.001));
  EXPECT_TRUE(torch::allclose(mixed->forward(x).narrow(1, 2048 - 192, 192), expected, 1e-4, 1e-4));
}

TEST(InceptionV3, StartsAsTorchvisionDoes) {
  Model model = build({.name = "inception_v3"});
  auto parameters = model.module->named_parameters();
  EXPECT_NEAR(parameters["Conv2d_1a_3x3.conv.weight"].std().item<double>(), 0.1, 0.01);
  EXPECT_NEAR(parameters["AuxLogits.conv1.conv.weight"].std().item<double>(), 0.1, 0.001);
  EXPECT_NEAR(parameters["AuxLogits.fc.weight"].std().item<double>(), 0.001, 0.0001);
  EXPECT_EQ(parameters["Mixed_5b.branch1x1.bn.weight"].min().item<double>(), 1);
}

}  // namespace
}  // namespace yoke::models
