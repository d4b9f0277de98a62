#include "yoke/parallel/common/ddp/ddp_strategy.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <mutex>

#include "yoke/comm/run_ranks.h"

namespace yoke::parallel {
namespace {

// A quartic over a few weights, which samples of zeros know nothing of.
models::Model steep_model() {
  torch::manual_seed(3);
  models::Model model;
  model.name = "steep";
  torch::nn::Linear layer(torch::nn::LinearOptions(3, 2).bias(false));
  model.module = layer.ptr();
  model.module->to(torch::kFloat64);
  model.blocks = {{"layer",
                   [=](const models::Tensors& x) mutable { return models::Tensors{layer(x[0])}; },
                   {layer.ptr()}}};
  model.loss = [](const models::Tensors& outputs, const torch::Tensor& target) {
    torch::Tensor away = outputs[0] - target;
    return (away.square() + away.pow(4)).mean();
  };
  return model;
}

std::vector<optim::NamedTensor> weights_of(const models::Model& model) {
  std::vector<optim::NamedTensor> weights;
  for (const auto& item : model.module->named_parameters()) weights.emplace_back(item.key(), item.value());
  return weights;
}

OneDeviceOptions keeping_batches() {
  OneDeviceOptions options;
  options.keep_batches = true;
  return options;
}

optim::OptimizerOptions lbfgs_options() {
  optim::OptimizerOptions options;
  options.optimizer = "lbfgs";
  options.history = 4;
  options.inner_steps = 8;
  return options;
}

torch::Tensor samples_of(int64_t step) {
  torch::Tensor x = torch::sin(torch::arange(12 * 3, torch::kFloat64).view({12, 3}) + step);
  x.narrow(0, 0, 6).zero_();  // rank 0's: its loss never changes
  return x;
}

void take_steps(Strategy& strategy, int64_t rank, int64_t ranks) {
  for (int64_t step = 0; step < 6; ++step) {
    strategy.acquire();
    int64_t rows = 12 / ranks;
    torch::Tensor x = samples_of(step).narrow(0, rank * rows, rows);
    strategy.compute({x}, torch::full({rows, 2}, 0.25, torch::kFloat64), {});
    strategy.commit({0.8, false});
  }
}

TEST(DdpStrategy, LbfgsDecidesByTheLossOfAllRanks) {
  models::Model alone = steep_model();
  auto optimizer = optim::make(lbfgs_options(), weights_of(alone));
  optim::GradScaler scaler({.enabled = false});
  OneDevice device(alone, *optimizer, scaler, keeping_batches());
  take_steps(device, 0, 1);
  torch::Tensor expected = alone.module->parameters()[0].detach();

  std::mutex building;  // seeds are the process's
  std::vector<torch::Tensor> results(2);
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    std::unique_lock lock(building);
    models::Model model = steep_model();
    lock.unlock();
    auto own = optim::make(lbfgs_options(), weights_of(model));
    optim::GradScaler no_scale({.enabled = false});
    DdpStrategy strategy(model, *own, no_scale, keeping_batches(), comm, {});
    take_steps(strategy, comm.rank(), 2);
    results[static_cast<size_t>(comm.rank())] = model.module->parameters()[0].detach().clone();
  });
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_LT((results[0] - expected).abs().max().item<double>(), 1e-9);
}

}  // namespace
}  // namespace yoke::parallel
