#include "yoke/checkpoint/torch_optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim.h>

#include <functional>

#include "yoke/base/error.h"

namespace yoke::checkpoint {
namespace {

using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

std::vector<torch::Tensor> start_values() {
  return {torch::arange(6, torch::kFloat).reshape({2, 3}).requires_grad_(),
          torch::ones({4}).requires_grad_()};
}

void step(torch::optim::Optimizer& optimizer, const std::vector<torch::Tensor>& parameters, int number) {
  optimizer.zero_grad();
  torch::Tensor loss = (parameters[0] * parameters[0]).sum() * (number + 1) + (parameters[1] - 3).abs().sum();
  loss.backward();
  optimizer.step();
}

// Three steps, saved, restored into a fresh optimizer, three more: as six.
void expect_resumes(const Make& make) {
  auto whole = start_values(), half = start_values();
  auto one = make(whole);
  for (int i = 0; i < 6; ++i) step(*one, whole, i);

  auto before = make(half);
  for (int i = 0; i < 3; ++i) step(*before, half, i);
  std::vector<NamedTensor> saved;
  for (const auto& [name, tensor] : optimizer_state(*before)) saved.emplace_back(name, tensor.clone());
  auto after = make(half);
  restore_optimizer(*after, saved, "test");
  for (int i = 3; i < 6; ++i) step(*after, half, i);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(whole[i].equal(half[i])) << i;
}

TEST(TorchOptimizer, StateOfEveryKindIsSavedAndRestored) {
  namespace to = torch::optim;
  using Tensors = std::vector<torch::Tensor>;
  expect_resumes([](Tensors p) { return std::make_unique<to::SGD>(p, to::SGDOptions(0.01).momentum(0.9)); });
  expect_resumes([](Tensors p) { return std::make_unique<to::SGD>(p, to::SGDOptions(0.01)); });
  expect_resumes(
      [](Tensors p) { return std::make_unique<to::Adam>(p, to::AdamOptions(0.01).amsgrad(true)); });
  expect_resumes([](Tensors p) { return std::make_unique<to::AdamW>(p, to::AdamWOptions(0.01)); });
  expect_resumes([](Tensors p) { return std::make_unique<to::Adagrad>(p, to::AdagradOptions(0.1)); });
  expect_resumes([](Tensors p) {
    return std::make_unique<to::RMSprop>(p, to::RMSpropOptions(0.01).momentum(0.5).centered(true));
  });
}

TEST(TorchOptimizer, WhatDoesNotFitIsRefusedByName) {
  auto parameters = start_values();
  torch::optim::LBFGS lbfgs(parameters);
  EXPECT_THROW(optimizer_state(lbfgs), ConfigError);

  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  auto message = [&](const std::vector<NamedTensor>& saved) -> std::string {
    try {
      restore_optimizer(sgd, saved, "here");
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_NE(message({{"exp_avg/0.0", torch::ones({2, 3})}}).find("\"exp_avg/0.0\""), std::string::npos);
  EXPECT_NE(message({{"momentum_buffer/0.1", torch::ones({5})}}).find("\"momentum_buffer/0.1\""),
            std::string::npos);
  EXPECT_TRUE(sgd.state().empty());
}

}  // namespace
}  // namespace yoke::checkpoint
