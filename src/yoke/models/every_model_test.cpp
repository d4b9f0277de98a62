// What must be true of every model, at small sizes. AlexNet and VGG16 have no small size; they are made of
// the same parts as the small VGG, and tests/interop compares them with torchvision's.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <unordered_set>

#include "yoke/models/test_batch.h"

namespace yoke::models {
namespace {

class EveryModel : public testing::TestWithParam<ModelOptions> {
 protected:
  EveryModel() : model(build_seeded(GetParam())), batch(make_test_batch(model.sample, /*samples=*/2)) {}

  static Model build_seeded(const ModelOptions& options) {
    torch::manual_seed(1);
    return build(options);
  }

  torch::Tensor loss_of(const TestBatch& on) { return model.loss(model.forward(on.inputs), on.target); }

  std::vector<torch::Tensor> take_gradients() {
    std::vector<torch::Tensor> gradients;
    for (torch::Tensor& parameter : model.module->parameters()) {
      gradients.push_back(parameter.grad().clone());
      parameter.mutable_grad().reset();
    }
    return gradients;
  }

  Model model;
  TestBatch batch;
};

TEST_P(EveryModel, SendsGradientsToEveryParameter) {
  torch::Tensor loss = loss_of(batch);
  EXPECT_EQ(loss.dim(), 0);
  loss.backward();
  for (const auto& item : model.module->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    // With one linear layer on top of zeros, or a bias in front of a norm, a gradient may vanish; a weight's
    // does not.
    if (!item.key().ends_with("weight")) continue;
    EXPECT_TRUE(item.value().grad().ne(0).any().item<bool>()) << item.key();
  }
}

// What a pipeline does: each block apart, gradients handed back from block to block.
TEST_P(EveryModel, GivesTheSameGradientsBlockByBlock) {
  loss_of(batch).backward();
  std::vector<torch::Tensor> whole = take_gradients();

  Tensors values = batch.inputs;
  std::vector<Tensors> inputs;
  std::vector<Tensors> outputs;
  for (const Block& block : model.blocks) {
    for (torch::Tensor& value : values) value = value.detach().requires_grad_(value.is_floating_point());
    inputs.push_back(values);
    values = block.forward(values);
    outputs.push_back(values);
  }
  model.loss(outputs.back(), batch.target).backward();
  for (size_t i = model.blocks.size() - 1; i-- > 0;) {
    std::vector<torch::Tensor> roots;
    std::vector<torch::Tensor> back;
    for (size_t j = 0; j < outputs[i].size(); ++j) {
      if (!inputs[i + 1][j].grad().defined()) continue;
      roots.push_back(outputs[i][j]);
      back.push_back(inputs[i + 1][j].grad());
    }
    torch::autograd::backward(roots, back);
  }
  std::vector<torch::Tensor> parts = take_gradients();
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(torch::allclose(whole[i], parts[i], 1e-4, 1e-6)) << i;
}

TEST_P(EveryModel, CoversItsParametersByBlocksWithNamesOfTheirOwn) {
  std::unordered_set<const void*> covered;
  std::unordered_set<std::string> names;
  for (const Block& block : model.blocks) {
    EXPECT_TRUE(names.insert(block.name).second) << block.name;
    for (const auto& module : block.modules) {
      for (const torch::Tensor& parameter : module->parameters())
        covered.insert(parameter.unsafeGetTensorImpl());
    }
  }
  for (const auto& item : model.module->named_parameters()) {
    EXPECT_TRUE(covered.contains(item.value().unsafeGetTensorImpl())) << item.key();
  }
}

TEST_P(EveryModel, RunsInOtherNumberFormats) {
  double expected = loss_of(batch).item<double>();
  model.module->to(torch::kDouble);
  EXPECT_NEAR(loss_of(converted(batch, torch::kDouble)).item<double>(), expected, 1e-3 * expected);
  model.module->to(torch::kBFloat16);
  torch::Tensor loss = loss_of(converted(batch, torch::kBFloat16));
  EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected, 0.1 * expected);
  loss.backward();
}

TEST_P(EveryModel, RunsUnderAutocast) {
  double expected = loss_of(batch).item<double>();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  torch::Tensor loss = loss_of(batch);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected, 0.1 * expected);
  loss.backward();
}

TEST_P(EveryModel, TakesImagesInChannelsLast) {
  if (model.sample.kind != SampleKind::kImage) GTEST_SKIP() << "no images";
  double expected = loss_of(batch).item<double>();
  batch.inputs[0] = batch.inputs[0].contiguous(torch::MemoryFormat::ChannelsLast);
  EXPECT_NEAR(loss_of(batch).item<double>(), expected, 1e-4 * expected);
}

TEST_P(EveryModel, CountsRightAnswersWhereItHasSuchAThing) {
  model.module->eval();
  if (!model.correct) GTEST_SKIP() << "no right answers";
  Tensors outputs = model.forward(batch.inputs);
  torch::Tensor best = outputs[0].dim() == 1 ? outputs[0].gt(0).to(torch::kFloat) : outputs[0].argmax(1);
  torch::Tensor correct = model.correct(outputs, best);
  EXPECT_EQ(correct.scalar_type(), torch::kLong);
  EXPECT_EQ(correct.item<int64_t>(), 2);
}

INSTANTIATE_TEST_SUITE_P(
    Small, EveryModel,
    testing::Values(
        ModelOptions{.name = "lenet"}, ModelOptions{.name = "mlp", .sizes = {6, 5, 4, 3}},
        ModelOptions{.name = "vgg_small", .image_size = 16},
        ModelOptions{.name = "resnet50", .classes = 5, .image_size = 32},
        ModelOptions{.name = "inception_v3", .classes = 5, .image_size = 75, .dropout = 0},
        ModelOptions{.name = "gpt2", .layers = 2, .heads = 2, .width = 8, .vocabulary = 11, .positions = 6},
        ModelOptions{.name = "s2vt", .width = 6, .vocabulary = 9, .frames = 3, .features = 5, .words = 4},
        ModelOptions{.name = "sparse_lr", .features = 7}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace yoke::models
