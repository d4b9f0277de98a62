// Recorded steps beside the same steps one by one. Without a GPU only the steps before the recording run.
#include "yoke/parallel/schedule/graphed/graphed_device.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cmath>
#include <memory>

#include "yoke/models/model.h"
#include "yoke/models/test_batch.h"

namespace yoke::parallel {
namespace {

torch::Device device_here() {
  return torch::cuda::is_available() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

int64_t steps_here() {
  return torch::cuda::is_available() ? 9 : 3;
}

struct Case {
  models::ModelOptions model;
  std::string optimizer;
  int64_t accumulate = 1;
  double clip_norm = 0;
  double scale = 0;  // at the start; 0: losses are not scaled
  torch::ScalarType type = torch::kFloat;
  double loudness = 1;  // of the inputs, if they are not tokens
};

models::ModelOptions small_gpt() {
  models::ModelOptions options;
  options.name = "gpt2";
  options.layers = 2;
  options.width = 64;
  options.heads = 2;
  options.vocabulary = 200;
  options.positions = 16;
  return options;
}

struct Training {
  std::vector<double> losses;
  std::vector<torch::Tensor> weights;
  std::vector<bool> updated;
  double scale = 0;
};

// The same batches and initial weights each time.
template <class MakeStrategy>
Training train(const Case& c, const MakeStrategy& make) {
  torch::manual_seed(7);
  models::Model model = models::build(c.model);
  model.module->to(device_here());
  if (c.type != torch::kFloat) model.module->to(c.type);
  std::vector<optim::NamedTensor> parameters;
  for (const auto& item : model.module->named_parameters()) parameters.emplace_back(item.key(), item.value());
  optim::OptimizerOptions how;
  how.optimizer = c.optimizer;
  how.momentum = 0.9;
  auto optimizer = optim::make(how, parameters);
  optim::GradScaler scaler({.enabled = c.scale > 0});
  if (c.scale > 0) scaler.restore(c.scale, 0);
  OneDeviceOptions options;
  options.device = device_here();
  options.clip_norm = c.clip_norm;
  options.place = [&](const torch::Tensor& input) { return input.to(options.device); };
  std::unique_ptr<Strategy> strategy = make(model, *optimizer, scaler, options);
  Training result;
  for (int64_t step = 0; step < steps_here(); ++step) {
    strategy->acquire();
    for (int64_t i = 0; i < c.accumulate; ++i) {
      models::TestBatch batch = models::make_test_batch(model.sample, 4);
      if (batch.inputs[0].is_floating_point()) batch.inputs[0] *= c.loudness;
      const MicroBatch micro{1.0 / static_cast<double>(c.accumulate), i + 1 == c.accumulate};
      result.losses.push_back(strategy->compute(batch.inputs, batch.target, micro).loss.item<double>());
    }
    result.updated.push_back(strategy->commit({0.01, /*measure_norm=*/step % 4 == 3}).updated);
  }
  strategy->drain();
  result.scale = scaler.current_scale();
  for (const torch::Tensor& weight : model.module->parameters())
    result.weights.push_back(weight.detach().cpu().to(torch::kDouble));
  return result;
}

Training train_one_by_one(const Case& c) {
  return train(c, [](auto& model, auto& optimizer, auto& scaler, auto& options) {
    return std::make_unique<OneDevice>(model, optimizer, scaler, options);
  });
}

Training train_recorded(const Case& c) {
  return train(c, [&](auto& model, auto& optimizer, auto& scaler, auto& options) {
    return std::make_unique<GraphedDevice>(model, optimizer, scaler, options, c.scale > 0);
  });
}

void expect_the_same(const Case& c) {
  SCOPED_TRACE(c.model.name + " " + c.optimizer + " " + std::to_string(c.accumulate) + " " +
               std::to_string(c.scale));
  Training expected = train_one_by_one(c), recorded = train_recorded(c);
  ASSERT_EQ(recorded.losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(recorded.losses[i], expected.losses[i], 1e-4 * std::abs(expected.losses[i])) << i;
  for (size_t i = 0; i < expected.weights.size(); ++i)
    EXPECT_LE((recorded.weights[i] - expected.weights[i]).abs().max().item<double>(), 2e-4) << i;
  // Told one step later.
  EXPECT_TRUE(recorded.updated[0]);
  for (size_t i = 0; i + 1 < expected.updated.size(); ++i)
    EXPECT_EQ(recorded.updated[i + 1], expected.updated[i]) << i;
  EXPECT_EQ(recorded.scale, expected.scale);
}

TEST(GraphedDevice, AddsTheGradientsOfMicroBatches) {
  expect_the_same({{.name = "lenet"}, "sgd", /*accumulate=*/3});
  expect_the_same({small_gpt(), "adamw", /*accumulate=*/2, /*clip_norm=*/0.5});
}

TEST(GraphedDevice, ScalesLossesAndSkipsOnTheDevice) {
  expect_the_same({{.name = "lenet"}, "sgd", 1, 0, /*scale=*/1024});
  expect_the_same({small_gpt(), "adamw", /*accumulate=*/2, /*clip_norm=*/0.5, /*scale=*/65536});
}

TEST(GraphedDevice, StartsWithAScaleThatOverflows) {
  const Case c{{.name = "lenet"}, "sgd", 1, 0, /*scale=*/0x1p127, torch::kFloat, /*loudness=*/64};
  expect_the_same(c);
  EXPECT_FALSE(train_recorded(c).updated[1]);
}

// Gradients of fp16 weights stay scaled up to the update.
TEST(GraphedDevice, TrainsFp16WeightsAsFp32Ones) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  for (int64_t accumulate : {1, 2}) {
    Case narrow{small_gpt(), "adamw", accumulate, /*clip_norm=*/1.0, /*scale=*/65536, torch::kHalf};
    Case wide = narrow;
    wide.type = torch::kFloat;
    wide.scale = 0;
    Training expected = train_one_by_one(wide), recorded = train_recorded(narrow);
    for (size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(recorded.losses[i], expected.losses[i], 5e-3 * expected.losses[i]) << i;
    for (bool updated : recorded.updated) EXPECT_TRUE(updated);
  }
}

}  // namespace
}  // namespace yoke::parallel
