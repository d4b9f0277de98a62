// A small network, and training it on ranks and on one device: what parity tests share.
#pragma once

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <vector>

#include "yoke/comm/run_ranks.h"
#include "yoke/parallel/common/ddp/distributed_data_parallel.h"

namespace yoke::parallel::testing {

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 16));
    second = register_module("second", torch::nn::Linear(16, 8));
    last = register_module("last", torch::nn::Linear(8, 3));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(second(torch::tanh(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
};

constexpr int kSteps = 5;

struct Samples {
  torch::Tensor x, y;
};

// The global batch of a step: the same on every rank and in every run.
inline Samples batch_of_step(int step, int64_t samples = 12) {
  auto numbers = torch::arange(samples * 6, torch::kFloat64).view({samples, 6});
  auto targets = torch::arange(samples * 3, torch::kFloat64).view({samples, 3});
  return {torch::sin(numbers * 0.7 + step), torch::cos(targets * 1.3 + 2 * step)};
}

inline Samples slice(const Samples& all, int64_t rank, int64_t size) {
  int64_t part = all.x.size(0) / size;
  return {all.x.narrow(0, rank * part, part), all.y.narrow(0, rank * part, part)};
}

inline torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return (output - target).square().mean();
}

inline torch::optim::SGD optimizer_for(torch::nn::Module& net) {
  return torch::optim::SGD(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

inline torch::Tensor flat_parameters(const torch::nn::Module& net) {
  std::vector<torch::Tensor> all;
  for (const auto& one : net.parameters()) all.push_back(one.detach().reshape({-1}));
  return torch::cat(all).clone();
}

// One device on the whole batch.
template <class Net>
torch::Tensor train_alone(const std::shared_ptr<Net>& start, int steps = kSteps) {
  auto net = std::dynamic_pointer_cast<Net>(start->clone());
  auto optimizer = optimizer_for(*net);
  for (int step = 0; step < steps; ++step) {
    Samples batch = batch_of_step(step);
    optimizer.zero_grad();
    loss_of(net->forward(batch.x), batch.y).backward();
    optimizer.step();
  }
  return flat_parameters(*net);
}

// What a rank does with its part of a step's batch, before the optimizer moves.
template <class Net>
using RankStep = std::function<void(Net&, DistributedDataParallel&, const Samples&)>;

template <class Net>
void plain_step(Net& net, DistributedDataParallel&, const Samples& part) {
  loss_of(net.forward(part.x), part.y).backward();
}

// Ranks as threads, each on its part. Every rank's parameters.
template <class Net>
std::vector<torch::Tensor> train_on_ranks(const std::shared_ptr<Net>& start, int size,
                                          DdpOptions options = {},
                                          const RankStep<Net>& step_of = plain_step<Net>,
                                          int steps = kSteps) {
  std::vector<std::shared_ptr<Net>> nets;
  for (int rank = 0; rank < size; ++rank) nets.push_back(std::dynamic_pointer_cast<Net>(start->clone()));
  std::vector<torch::Tensor> results(static_cast<size_t>(size));
  comm::run_ranks(size, [&](comm::Communicator& comm) {
    auto& net = nets[static_cast<size_t>(comm.rank())];
    DistributedDataParallel ddp(*net, comm, options);
    auto optimizer = optimizer_for(*net);
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      step_of(*net, ddp, slice(batch_of_step(step), comm.rank(), size));
      optimizer.step();
    }
    results[static_cast<size_t>(comm.rank())] = flat_parameters(*net);
  });
  return results;
}

inline double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace yoke::parallel::testing
