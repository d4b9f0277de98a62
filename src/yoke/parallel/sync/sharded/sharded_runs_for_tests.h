// Models, batches and training runs that the tests of sharded strategies share.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "yoke/comm/run_ranks.h"
#include "yoke/parallel/common/ddp/ddp_strategy.h"
#include "yoke/parallel/common/ddp/same_model.h"
#include "yoke/parallel/sync/sharded/fully_sharded_strategy.h"

namespace yoke::parallel::sharded_testing {

constexpr int kSteps = 10;
constexpr int64_t kBatch = 12;

inline models::ModelOptions mlp() {
  models::ModelOptions options;
  options.name = "mlp";
  options.sizes = {20, 16, 12, 5};
  return options;
}

inline models::ModelOptions gpt2() {
  models::ModelOptions options;
  options.name = "gpt2";
  options.vocabulary = 23;
  options.positions = 8;
  options.dropout = 0;
  options.layers = 3;
  options.heads = 2;
  options.width = 8;
  return options;
}

inline models::ModelOptions vgg() {
  models::ModelOptions options;
  options.name = "vgg";
  return options;
}

// Two blocks of convolution and BatchNorm, and a head.
inline models::Model small_vgg() {
  models::Model model;
  model.name = "vgg";
  model.module = std::make_shared<torch::nn::Module>();
  model.sample.shape = {3, 8, 8};
  model.sample.classes = 5;
  for (int64_t i = 0; i < 2; ++i) {
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(i == 0 ? 3 : 6, 6, 3).padding(1).bias(false));
    torch::nn::BatchNorm2d norm(6);
    model.module->register_module("conv" + std::to_string(i), conv);
    model.module->register_module("norm" + std::to_string(i), norm);
    auto forward = [=](const models::Tensors& x) mutable {
      return models::Tensors{torch::max_pool2d(torch::relu(norm(conv(x[0]))), 2)};
    };
    model.blocks.push_back({"features" + std::to_string(i), forward, {conv.ptr(), norm.ptr()}});
  }
  torch::nn::Linear head(24, 5);
  model.module->register_module("head", head);
  model.blocks.push_back(
      {"head",
       [=](const models::Tensors& x) mutable { return models::Tensors{head(x[0].flatten(1))}; },
       {head.ptr()}});
  model.loss = [](const models::Tensors& outputs, const torch::Tensor& target) {
    return torch::cross_entropy_loss(outputs[0], target);
  };
  return model;
}

struct Layout {
  models::ModelOptions model = mlp();
  int ranks = 2;
  FullyShardOptions shard;
  int64_t accumulate = 1;
  bool recompute = false;
  double clip = 0;
  int steps = kSteps;
  torch::ScalarType type = torch::kFloat64;
};

inline std::mutex building;  // seeds are the process's

inline models::Model build(const Layout& run) {
  std::unique_lock lock(building);
  torch::manual_seed(5);
  models::Model model = run.model.name == "vgg" ? small_vgg() : models::build(run.model);
  model.module->to(run.type);
  return model;
}

struct Sample {
  torch::Tensor x, y;
};

// The same for every layout; ranks take their rows.
inline Sample sample_of(const models::Model& model, int step, torch::ScalarType type,
                        int64_t samples = kBatch) {
  if (model.name == "gpt2") {
    torch::Tensor tokens = (torch::arange(samples * 9).view({samples, 9}) * 7 + step * 3).remainder(23);
    return {tokens.narrow(1, 0, 8).contiguous(), tokens.narrow(1, 1, 8).contiguous()};
  }
  std::vector<int64_t> shape = {samples};
  int64_t count = samples;
  for (int64_t size : model.sample.shape) shape.push_back(size), count *= size;
  torch::Tensor x = torch::sin(torch::arange(count, torch::kFloat64) * 0.37 + step).view(shape);
  return {x.to(type), (torch::arange(samples) + step).remainder(model.sample.classes)};
}

inline OneDeviceOptions device_options(const Layout& run, const models::Model& model) {
  OneDeviceOptions options;
  options.clip_norm = run.clip;
  if (run.recompute)
    for (size_t i = 0; i < model.blocks.size(); ++i) options.segments.push_back({i, i + 1, true});
  return options;
}

inline optim::OptimizerOptions adamw() {
  optim::OptimizerOptions options;
  options.optimizer = "adamw";
  options.weight_decay = 0.1;
  return options;
}

inline void take_step(Strategy& strategy, const models::Model& model, const Layout& run, int step,
                      int64_t rank, int64_t ranks) {
  strategy.acquire();
  int64_t rows = kBatch / ranks / run.accumulate;
  for (int64_t micro = 0; micro < run.accumulate; ++micro) {
    Sample all = sample_of(model, step, run.type);
    int64_t first = (rank * run.accumulate + micro) * rows;
    strategy.compute({all.x.narrow(0, first, rows)}, all.y.narrow(0, first, rows),
                     {1.0 / static_cast<double>(run.accumulate), micro + 1 == run.accumulate});
  }
  strategy.commit({0.01, false});
}

inline NamedTensors copies(const NamedTensors& tensors) {
  NamedTensors all;
  for (const auto& [name, tensor] : tensors) all.emplace_back(name, tensor.detach().clone());
  return all;
}

inline NamedTensors alone(const Layout& run) {
  models::Model model = build(run);
  std::vector<optim::NamedTensor> weights = distinct_parameters(*model.module);
  auto optimizer = optim::make(adamw(), weights);
  optim::GradScaler scaler({.enabled = false});
  OneDevice device(model, *optimizer, scaler, device_options(run, model));
  for (int step = 0; step < run.steps; ++step) take_step(device, model, run, step, 0, 1);
  return copies(weights);
}

inline NamedTensors data_parallel(const Layout& run) {
  NamedTensors result;
  comm::run_ranks(run.ranks, [&](comm::Communicator& comm) {
    models::Model model = build(run);
    std::vector<optim::NamedTensor> weights = distinct_parameters(*model.module);
    auto optimizer = optim::make(adamw(), weights);
    optim::GradScaler scaler({.enabled = false});
    DdpStrategy strategy(model, *optimizer, scaler, device_options(run, model), comm, {});
    for (int step = 0; step < run.steps; ++step)
      take_step(strategy, model, run, step, comm.rank(), run.ranks);
    if (comm.rank() == 0) result = copies(weights);
  });
  return result;
}

inline NamedTensors fully(const Layout& run) {
  NamedTensors result;
  comm::run_ranks(run.ranks, [&](comm::Communicator& comm) {
    models::Model model = build(run);
    FullyShard shard(model, comm, run.shard);
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.enabled = false});
    FullyShardedStrategy strategy(model, *optimizer, scaler, device_options(run, model), shard);
    for (int step = 0; step < run.steps; ++step)
      take_step(strategy, model, run, step, comm.rank(), run.ranks);
    NamedTensors whole = shard.full_parameters();
    if (comm.rank() == 0) result = whole;
  });
  return result;
}

inline double difference(const NamedTensors& a, const NamedTensors& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    largest = std::max(largest, (a[i].second - b[i].second).abs().max().item<double>());
  }
  return largest;
}

inline FullyShardOptions gathering() {
  FullyShardOptions options;
  options.share = false;
  return options;
}

}  // namespace yoke::parallel::sharded_testing
