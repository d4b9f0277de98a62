#include "yoke/parallel/common/slow_motion.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <thread>

#include "yoke/base/clock.h"

namespace yoke::parallel {
namespace {

constexpr double kBlock = 0.005;

// Two blocks that take at least kBlock each.
models::Model sleepy_model() {
  models::Model model;
  auto layer = std::make_shared<torch::nn::LinearImpl>(4, 4);
  model.module = layer;
  for (int i = 0; i < 2; ++i) {
    auto forward = [layer](const models::Tensors& inputs) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kBlock));
      return models::Tensors{layer->forward(inputs[0])};
    };
    model.blocks.push_back({"block", forward, {layer}});
  }
  model.loss = [](const models::Tensors& outputs, const torch::Tensor&) { return outputs[0].square().sum(); };
  return model;
}

struct Step {
  torch::Tensor gradient;
  double seconds;
};

Step step_of(const models::Model& model, const torch::Tensor& input) {
  model.module->zero_grad();
  Stopwatch watch;
  model.loss(model.forward({input}), {}).backward();
  return {model.module->parameters().front().grad().clone(), watch.seconds()};
}

// A step under the law takes at least so long, and changes no gradient.
void expect_slower(const std::string& law, double seconds) {
  models::Model model = sleepy_model();
  torch::Tensor input = torch::randn({3, 4});
  Step plain = step_of(model, input);
  Step slow = step_of(in_slow_motion(model, plan::parse_delay_law(law), 1, 0), input);
  EXPECT_TRUE(plain.gradient.equal(slow.gradient));
  EXPECT_GE(slow.seconds, seconds);
}

TEST(SlowMotion, AFactorStretchesTheBlocksAndChangesNoGradient) {
  // Two blocks forward; and what the first takes forward stands for its backward pass, two thirds of it
  // waited.
  expect_slower("const:3x", 3 * 2 * kBlock + 2 * 2 * kBlock);
}

TEST(SlowMotion, OtherLawsWaitOnceAMinibatch) {
  expect_slower("shifted_exp:50ms,1us", 0.05 + 2 * kBlock);
}

TEST(SlowMotion, EvaluationDoesNotWait) {
  models::Model model = sleepy_model();
  models::Model slow = in_slow_motion(model, plan::parse_delay_law("shifted_exp:10s,1us"), 1, 0);
  slow.module->eval();
  Stopwatch watch;
  slow.loss(slow.forward({torch::randn({3, 4})}), {});
  EXPECT_LT(watch.seconds(), 10);
}

}  // namespace
}  // namespace yoke::parallel
