// Small runs of replicas as threads. For tests.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "yoke/comm/run_ranks.h"
#include "yoke/parallel/common/ddp/ddp_strategy.h"
#include "yoke/parallel/sync/average/average_strategy.h"

namespace yoke::parallel::averaging_tests {

inline constexpr int64_t kRows = 4;  // of a replica's batch

// Two layers with BatchNorm between them where asked for; the same numbers in every process.
inline models::Model averaged_model(torch::ScalarType type = torch::kFloat64, bool norm = true) {
  models::Model model;
  model.name = "small";
  torch::nn::Sequential net;
  net->push_back(torch::nn::Linear(5, 6));
  if (norm) net->push_back(torch::nn::BatchNorm1d(6));
  net->push_back(torch::nn::Linear(6, 3));
  net->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  double seed = 0;
  for (torch::Tensor& one : net->parameters())
    one.copy_(torch::sin(torch::arange(one.numel(), torch::kFloat64) * 1.7 + ++seed).view_as(one) * 0.4);
  net->to(type);
  model.module = net.ptr();
  model.blocks = {{"net",
                   [=](const models::Tensors& x) mutable { return models::Tensors{net->forward(x[0])}; },
                   {net.ptr()}}};
  model.loss = [](const models::Tensors& outputs, const torch::Tensor& target) {
    return (outputs[0] - target).square().mean();
  };
  return model;
}

inline std::vector<optim::NamedTensor> named_parameters_of(const models::Model& model) {
  std::vector<optim::NamedTensor> all;
  for (const auto& item : model.module->named_parameters()) all.emplace_back(item.key(), item.value());
  return all;
}

inline torch::Tensor flat_parameters(const models::Model& model) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& one : model.module->parameters())
    all.push_back(one.detach().to(torch::kFloat64).reshape({-1}));
  return torch::cat(all);
}

// One replica with all that belongs to it.
struct OneReplica {
  OneReplica(comm::Communicator& group, const AverageOptions& average, const optim::OptimizerOptions& how,
             const DdpOptions& ddp = {}, torch::ScalarType of = torch::kFloat64, bool norm = true)
      : comm(group),
        model(averaged_model(of, norm)),
        type(of),
        optimizer(optim::make(how, named_parameters_of(model))) {
    strategy =
        std::make_unique<AverageStrategy>(model, *optimizer, scaler, OneDeviceOptions{}, comm, average, ddp);
  }

  void step(int64_t number, double lr = 0.1) { take_step(*strategy, comm.rank(), number, lr, type); }

  static void take_step(Strategy& strategy, int rank, int64_t number, double lr,
                        torch::ScalarType of = torch::kFloat64) {
    strategy.acquire();
    torch::Tensor x = torch::cos(torch::arange(kRows * 5, torch::kFloat64).view({kRows, 5}) * (1.3 + rank) +
                                 static_cast<double>(number));
    torch::Tensor y = torch::sin(x.narrow(1, 0, 3) * 3);
    ComputeResult result = strategy.compute({x.to(of)}, y.to(of), {});
    strategy.agree({result.loss, 0});
    strategy.commit({lr, false});
  }

  comm::Communicator& comm;
  models::Model model;
  torch::ScalarType type;
  optim::GradScaler scaler{{.enabled = false}};
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<AverageStrategy> strategy;
};

inline optim::OptimizerOptions plain_sgd(double momentum = 0.9) {
  optim::OptimizerOptions options;
  options.optimizer = "sgd";
  options.momentum = momentum;
  options.weight_decay = 0.01;
  return options;
}

// Runs `body` on every rank and returns what each gives back.
inline std::vector<torch::Tensor> on_ranks(int ranks,
                                           const std::function<torch::Tensor(comm::Communicator&)>& body) {
  std::vector<torch::Tensor> results(static_cast<size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    results[static_cast<size_t>(comm.rank())] = body(comm).clone();
  });
  return results;
}

// The parameters of each rank after `steps` steps, averaged at the end.
inline std::vector<torch::Tensor> trained(int ranks, const AverageOptions& average,
                                          const optim::OptimizerOptions& how, int64_t steps,
                                          const DdpOptions& ddp = {}) {
  return on_ranks(ranks, [&](comm::Communicator& comm) {
    OneReplica replica(comm, average, how, ddp);
    for (int64_t step = 0; step < steps; ++step) replica.step(step);
    replica.strategy->drain();
    return flat_parameters(replica.model);
  });
}

inline std::vector<torch::Tensor> trained_by_ddp(int ranks, const optim::OptimizerOptions& how,
                                                 int64_t steps) {
  return on_ranks(ranks, [&](comm::Communicator& comm) {
    models::Model model = averaged_model();
    auto optimizer = optim::make(how, named_parameters_of(model));
    optim::GradScaler scaler({.enabled = false});
    DdpStrategy strategy(model, *optimizer, scaler, {}, comm, {});
    for (int64_t step = 0; step < steps; ++step) OneReplica::take_step(strategy, comm.rank(), step, 0.1);
    return flat_parameters(model);
  });
}

inline double apart(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace yoke::parallel::averaging_tests
