#include "yoke/parallel/sync/average/average_strategy.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/sync/average/average_runs_for_tests.h"
#include "yoke/plan/averaging/graph.h"

namespace yoke::parallel::average_test {
namespace {

using namespace averaging_tests;

constexpr double kRoundingApart = 1e-12;

// Replicas by hand, on one device: local SGD with an outer step, all in fp64.
std::vector<torch::Tensor> by_hand(int ranks, int64_t every, int64_t steps, double outer_lr,
                                   double outer_momentum) {
  std::vector<models::Model> models;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  std::vector<std::unique_ptr<OneDevice>> devices;
  optim::GradScaler scaler({.enabled = false});
  models.reserve(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    models.push_back(averaged_model());
    optimizers.push_back(optim::make(plain_sgd(), named_parameters_of(models.back())));
    devices.push_back(
        std::make_unique<OneDevice>(models.back(), *optimizers.back(), scaler, OneDeviceOptions{}));
  }
  torch::NoGradGuard no_grad;
  auto mean = [&] {
    torch::Tensor sum = flat_parameters(models[0]);
    for (int r = 1; r < ranks; ++r) sum = sum + flat_parameters(models[static_cast<size_t>(r)]);
    return sum / ranks;
  };
  torch::Tensor anchor = flat_parameters(models[0]), momentum = torch::zeros_like(anchor);
  for (int64_t step = 0; step < steps; ++step) {
    for (int r = 0; r < ranks; ++r) {
      torch::AutoGradMode grad(true);
      OneReplica::take_step(*devices[static_cast<size_t>(r)], r, step, 0.1);
    }
    if ((step + 1) % every != 0) continue;
    torch::Tensor moved = anchor - mean();
    momentum = outer_momentum * momentum + moved;
    anchor = anchor - outer_lr * (moved + outer_momentum * momentum);
    for (models::Model& model : models) {
      int64_t at = 0;
      for (torch::Tensor& one : model.module->parameters()) {
        one.copy_(anchor.narrow(0, at, one.numel()).view_as(one));
        at += one.numel();
      }
    }
  }
  return {mean()};
}

TEST(AverageStrategy, EveryStepWithSgdIsDdp) {
  for (int ranks : {2, 3, 4}) {
    torch::Tensor ddp = trained_by_ddp(ranks, plain_sgd(), 10)[0];
    for (const char* method : {"local", "post_local", "diloco"}) {
      AverageOptions average;
      average.method = method;
      average.start = 3;
      average.outer_lr = 1;
      average.outer_momentum = 0;
      for (const torch::Tensor& own : trained(ranks, average, plain_sgd(), 10))
        EXPECT_LT(apart(own, ddp), kRoundingApart) << method << " on " << ranks;
    }
  }
  AverageOptions gossip;
  gossip.method = "gossip";
  EXPECT_LT(apart(trained(2, gossip, plain_sgd(), 10)[1], trained_by_ddp(2, plain_sgd(), 10)[1]),
            kRoundingApart);
}

TEST(AverageStrategy, LocalStepsAndOuterStepsAreThoseOfThePapers) {
  for (int ranks : {2, 3}) {
    AverageOptions local;
    local.every = 4;
    for (const torch::Tensor& own : trained(ranks, local, plain_sgd(), 11))
      EXPECT_LT(apart(own, by_hand(ranks, 4, 11, 1, 0)[0]), kRoundingApart) << ranks;
    AverageOptions outer = local;
    outer.method = "diloco";
    for (const torch::Tensor& own : trained(ranks, outer, plain_sgd(), 11))
      EXPECT_LT(apart(own, by_hand(ranks, 4, 11, 0.7, 0.9)[0]), kRoundingApart) << ranks;
  }
}

TEST(AverageStrategy, OnceAtTheEndIsTheMeanOfRunsOnTheirOwn) {
  AverageOptions end;
  end.method = "end";
  for (const torch::Tensor& own : trained(3, end, plain_sgd(), 6))
    EXPECT_LT(apart(own, by_hand(3, 100, 6, 1, 0)[0]), kRoundingApart);
}

TEST(AverageStrategy, AllRanksEndWithTheSameBits) {
  for (const char* method : {"local", "end", "post_local", "diloco", "gossip"})
    for (int64_t overlap : {0, 2}) {
      AverageOptions average;
      average.method = method;
      average.every = 3;
      average.fragments = 2;
      average.overlap = overlap;
      average.start = 2;
      std::vector<torch::Tensor> ends = trained(4, average, plain_sgd(), 7);
      for (const torch::Tensor& own : ends) EXPECT_TRUE(own.equal(ends[0])) << method << " " << overlap;
    }
}

// x <- W x - lr g(x): messages travel while the gradient is computed.
TEST(AverageStrategy, GossipThatOverlapsByOneStepIsDPsgd) {
  AverageOptions gossip;
  gossip.method = "gossip";
  gossip.overlap = 1;
  on_ranks(3, [&](comm::Communicator& comm) {
    OneReplica replica(comm, gossip, plain_sgd(0), {}, torch::kFloat64, /*norm=*/false);
    models::Model other = averaged_model(torch::kFloat64, /*norm=*/false);
    auto optimizer = optim::make(plain_sgd(0), named_parameters_of(other));
    OneDevice device(other, *optimizer, replica.scaler, OneDeviceOptions{});
    for (int64_t step = 0; step < 5; ++step) {
      torch::Tensor before = flat_parameters(other).clone(), mean = before.clone();
      OneReplica::take_step(device, comm.rank(), step, 0.1);
      comm::all_reduce(comm, mean, ReduceOp::kMean, "W x");  // a ring of three is complete
      int64_t at = 0;
      // The first round begins behind the first step.
      for (torch::Tensor& one : other.module->parameters()) {
        torch::NoGradGuard no_grad;
        if (step > 0) one.add_((mean - before).narrow(0, at, one.numel()).view_as(one));
        at += one.numel();
      }
      replica.step(step);
      EXPECT_LT(apart(flat_parameters(replica.model), flat_parameters(other)), kRoundingApart) << step;
    }
    return flat_parameters(replica.model);
  });
}

// Without gradients only the rounds are left. --gtest_output=json lists the factors that were measured.
TEST(AverageStrategy, ConsensusFallsByTheSpectralGap) {
  constexpr double kRounding = 1e-12;  // of the distance at the start
  const std::pair<const char*, int> places[] = {{"ring", 8},        {"torus", 8}, {"hypercube", 8},
                                                {"exponential", 8}, {"full", 8},  {"torus", 6},
                                                {"ring", 5}};
  for (const auto& [kind, ranks] : places) {
    AverageOptions gossip;
    gossip.method = "gossip";
    gossip.graph = kind;
    const double rate = plan::contraction(plan::mixing_graph(kind, ranks));
    const std::vector<torch::Tensor> factors = on_ranks(ranks, [&, kind = kind](comm::Communicator& comm) {
      OneReplica replica(comm, gossip, plain_sgd(0));
      torch::NoGradGuard no_grad;
      for (torch::Tensor& one : replica.model.module->parameters())
        one.copy_(torch::sin(torch::arange(one.numel(), torch::kFloat64).view_as(one) * (comm.rank() + 1.0)));
      double before = 0, first = 0, factor = 0;
      torch::Tensor start;
      for (int64_t round = 0; round < 12; ++round) {
        torch::Tensor mean = flat_parameters(replica.model).clone();
        torch::Tensor own = mean.clone();
        comm::all_reduce(comm, mean, ReduceOp::kMean, "mean");
        if (round == 0) start = mean;
        EXPECT_LT(apart(mean, start), 1e-12) << "W is doubly stochastic: " << kind;
        torch::Tensor distance = (own - mean).square().sum().reshape({1});
        comm::all_reduce(comm, distance, ReduceOp::kSum, "distance");
        const double now = std::sqrt(distance.item<double>());
        if (round == 0) first = now;
        if (round > 0) {
          EXPECT_LE(now, rate * before * (1 + 1e-9) + kRounding * first) << kind << " round " << round;
        }
        if (round > 0 && before > kRounding * first) {
          factor = now / before;
          if (round > 7) {
            EXPECT_NEAR(factor, rate, 0.1 * rate) << kind << " round " << round;
          }
        }
        before = now;
        torch::AutoGradMode grad(true);
        replica.step(round, /*lr=*/0);
      }
      return torch::full({1}, factor, torch::kFloat64);
    });
    RecordProperty(fmt::format("{}_{}", kind, ranks), fmt::format("{:.3f}", factors[0].item<double>()));
  }
}

TEST(AverageStrategy, CompressionGoesByDifferencesAndReplicasAgree) {
  for (const char* hook : {"fp16", "bf16", "int8", "topk:0.5", "sign", "powersgd:1"}) {
    AverageOptions average;
    average.every = 2;
    DdpOptions ddp;
    ddp.hook = hook;
    std::vector<torch::Tensor> ends = trained(3, average, plain_sgd(0), 8, ddp),
                               plain = trained(3, average, plain_sgd(0), 8);
    for (const torch::Tensor& own : ends) EXPECT_TRUE(own.equal(ends[0])) << hook;
    EXPECT_LT(apart(ends[0], plain[0]), 0.2) << hook;
  }
}

TEST(AverageStrategy, MastersOfBf16WeightsAreAveraged) {
  AverageOptions average;
  average.every = 2;
  std::vector<torch::Tensor> ends = on_ranks(2, [&](comm::Communicator& comm) {
    OneReplica replica(comm, average, plain_sgd(), {}, torch::kBFloat16, /*norm=*/false);
    for (int64_t step = 0; step < 4; ++step) replica.step(step);
    std::vector<torch::Tensor> masters = {flat_parameters(replica.model)};
    for (const auto& [name, tensor] : replica.optimizer->state())
      if (name.starts_with("master/")) masters.push_back(tensor.to(torch::kFloat64).reshape({-1}));
    EXPECT_EQ(masters.size(), 5u);
    return torch::cat(masters);
  });
  EXPECT_TRUE(ends[0].equal(ends[1]));
}

TEST(AverageStrategy, MoreFragmentsThanTensorsAreRefused) {
  AverageOptions average;
  average.every = 100;
  average.fragments = 50;
  EXPECT_THAT([&] { trained(2, average, plain_sgd(), 1); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("average.fragments = 50")));
}

}  // namespace
}  // namespace yoke::parallel::average_test
