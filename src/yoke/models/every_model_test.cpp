// What must be true of every model, at small sizes. The VGGs and AlexNet have none; they are made of the same
// parts as LeNet, and tests/interop compares them with the originals.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <unordered_set>

#include "yoke/models/test_batch.h"

namespace yoke::models {
namespace {

class EveryModel : public testing::TestWithParam<ModelOptions> {
 protected:
  EveryModel() : model(lay_out(GetParam())) {}

  void draw() {
    torch::manual_seed(1);
    model.initialise();
    batch = make_test_batch(model.sample, /*samples=*/2);
  }

  torch::Tensor loss_of(const TestBatch& on) { return model.loss(model.forward(on.inputs), on.target); }

  // Largest distance from `expected`, as a share of its largest element.
  double distance(const TestBatch& on, const torch::Tensor& expected) {
    torch::NoGradGuard no_grad;
    torch::Tensor difference = model.forward(on.inputs)[0].to(torch::kDouble) - expected;
    return (difference.abs().max() / expected.abs().max().clamp_min(1e-30)).item<double>();
  }

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

class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

TEST_P(EveryModel, SendsGradientsToEveryParameter) {
  draw();
  torch::Tensor loss = loss_of(batch);
  EXPECT_EQ(loss.dim(), 0);
  loss.backward();
  for (const auto& item : model.module->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    if (!item.key().ends_with("weight")) continue;  // a bias's may vanish, in front of a norm
    EXPECT_TRUE(item.value().grad().ne(0).any().item<bool>()) << item.key();
  }
}

// What a pipeline does: each block apart, gradients handed back from block to block.
TEST_P(EveryModel, GivesTheSameGradientsBlockByBlock) {
  draw();
  loss_of(batch).backward();
  std::vector<torch::Tensor> whole = take_gradients();

  Tensors values = batch.inputs;
  std::vector<Tensors> inputs;
  std::vector<Tensors> outputs;
  for (const Block& block : model.blocks) {
    for (torch::Tensor& value : values) value = value.detach().requires_grad_(!inputs.empty());
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
  for (size_t i = 0; i < whole.size(); ++i) {
    double error = (whole[i] - parts[i]).abs().max().item<double>();
    EXPECT_LE(error, 1e-5 * whole[i].abs().max().item<double>()) << "parameter " << i;
  }
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

// In evaluation: two samples make training's norms over single pixels too touchy to compare.
TEST_P(EveryModel, GivesTheSameOutputInOtherNumberFormats) {
  draw();
  model.module->to(torch::kDouble);
  model.module->eval();
  torch::NoGradGuard no_grad;
  torch::Tensor expected = model.forward(converted(batch, torch::kDouble).inputs)[0];
  model.module->to(torch::kFloat);
  EXPECT_LE(distance(batch, expected), 1e-4);
  if (model.sample.kind == SampleKind::kImage) {
    TestBatch channels_last = batch;
    channels_last.inputs[0] = batch.inputs[0].contiguous(torch::MemoryFormat::ChannelsLast);
    EXPECT_LE(distance(channels_last, expected), 1e-4);
  }
  {
    Autocast autocast;
    EXPECT_LE(distance(batch, expected), 0.1);
  }
  model.module->to(torch::kBFloat16);
  EXPECT_LE(distance(converted(batch, torch::kBFloat16), expected), 0.1);
}

TEST_P(EveryModel, TrainsInReducedPrecisionWithItsLossInFp32) {
  draw();
  auto train = [&](const TestBatch& on) {
    torch::Tensor loss = loss_of(on);
    EXPECT_EQ(loss.scalar_type(), torch::kFloat);
    EXPECT_TRUE(loss.isfinite().item<bool>());
    return loss;
  };
  torch::Tensor loss = [&] {
    Autocast autocast;
    return train(batch);
  }();
  loss.backward();
  take_gradients();
  model.module->to(torch::kBFloat16);
  train(converted(batch, torch::kBFloat16)).backward();
  for (const torch::Tensor& gradient : take_gradients()) EXPECT_EQ(gradient.scalar_type(), torch::kBFloat16);
}

TEST_P(EveryModel, CountsRightAnswersWhereItHasSuchAThing) {
  if (!model.correct) GTEST_SKIP() << model.name << " counts no right answers";
  int64_t classes = std::max<int64_t>(model.sample.classes, 2);
  bool binary = model.sample.kind == SampleKind::kSparse;
  torch::Tensor logits = binary ? torch::tensor({2.0, -1.0, 3.0}) : torch::eye(classes).narrow(0, 0, 2);
  torch::Tensor target = binary ? torch::tensor({1.0, 0.0, 0.0}) : torch::tensor({0, 0});
  torch::Tensor correct = model.correct({logits}, target);
  EXPECT_EQ(correct.scalar_type(), torch::kLong);
  EXPECT_EQ(correct.item<int64_t>(), binary ? 2 : 1);
}

INSTANTIATE_TEST_SUITE_P(
    Small, EveryModel,
    testing::Values(
        ModelOptions{.name = "lenet"}, ModelOptions{.name = "mlp", .sizes = {6, 5, 4, 3}},
        ModelOptions{.name = "resnet50", .classes = 5, .image_size = 32},
        ModelOptions{.name = "resnet18", .classes = 5, .image_size = 32},
        ModelOptions{.name = "inception_v3", .classes = 5, .image_size = 75, .dropout = 0},
        ModelOptions{.name = "gpt2", .layers = 2, .heads = 2, .width = 8, .vocabulary = 11, .positions = 6},
        ModelOptions{.name = "s2vt", .width = 6, .vocabulary = 9, .frames = 3, .features = 5, .words = 4},
        ModelOptions{.name = "sparse_lr", .features = 7}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace yoke::models
