// Trains a module on one device and cut over ranks, and compares: what parity tests of slices share.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "yoke/comm/run_ranks.h"
#include "yoke/parallel/placement/slice/parallelize.h"

namespace yoke::parallel::slice_testing {

constexpr int kSliceSteps = 5;

// A module and its loss of step `step`, on the same batches everywhere.
struct Trainee {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(int step)> loss;
};
using MakeTrainee = std::function<Trainee()>;

struct Result {
  std::vector<double> losses;
  std::map<std::string, torch::Tensor> first_gradients;  // whole
  std::map<std::string, torch::Tensor> parameters;
};

inline void copy_values(const torch::nn::Module& from, torch::nn::Module& to) {
  torch::NoGradGuard no_grad;
  auto sources = from.named_parameters();
  for (auto& named : to.named_parameters()) named.value().copy_(sources[named.key()]);
}

using Gather = std::function<torch::Tensor(const std::string& name, const torch::Tensor& part)>;

inline Result train(const Trainee& trainee, const Gather& gather, int steps) {
  torch::optim::SGD optimizer(trainee.module->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Result result;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    torch::Tensor loss = trainee.loss(step);
    loss.backward();
    result.losses.push_back(loss.item<double>());
    for (const auto& named : trainee.module->named_parameters()) {
      if (step == 0) result.first_gradients[named.key()] = gather(named.key(), named.value().grad()).clone();
    }
    optimizer.step();
  }
  for (const auto& named : trainee.module->named_parameters())
    result.parameters[named.key()] = gather(named.key(), named.value().detach()).clone();
  return result;
}

inline void expect_close(const std::map<std::string, torch::Tensor>& found,
                         const std::map<std::string, torch::Tensor>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(found.at(name).sizes(), tensor.sizes()) << what << " " << name;
    EXPECT_LT((found.at(name) - tensor).abs().max().item<double>(), 1e-10) << what << " " << name;
  }
}

// Losses, gradients and parameters of `steps` steps on `ranks` ranks equal those of one device to 1e-10, in
// fp64.
inline void expect_same_training(const MakeTrainee& make, const plan::TensorPlan& plan, int ranks,
                                 TensorParallelOptions options = {}, int steps = kSliceSteps) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks");
  Trainee alone = make();
  std::vector<Trainee> cut;
  for (int rank = 0; rank < ranks; ++rank) {
    cut.push_back(make());
    copy_values(*alone.module, *cut.back().module);
  }
  Result expected = train(
      alone, [](const std::string&, const torch::Tensor& whole) { return whole; }, steps);
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    const Trainee& mine = cut[static_cast<size_t>(comm.rank())];
    TensorParallel slices = parallelize(*mine.module, comm, plan, options);
    Result found = train(
        mine, [&](const std::string& name, const torch::Tensor& part) { return slices.gather(name, part); },
        steps);
    for (int step = 0; step < steps; ++step)
      EXPECT_NEAR(found.losses[static_cast<size_t>(step)], expected.losses[static_cast<size_t>(step)], 1e-10);
    expect_close(found.first_gradients, expected.first_gradients, "gradient of");
    expect_close(found.parameters, expected.parameters, "parameter");
  });
}

}  // namespace yoke::parallel::slice_testing
