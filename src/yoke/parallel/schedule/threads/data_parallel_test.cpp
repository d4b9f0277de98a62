#include "yoke/parallel/schedule/threads/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <atomic>

#include "yoke/base/error.h"

namespace yoke {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct TwoLayersImpl : torch::nn::Cloneable<TwoLayersImpl> {
  TwoLayersImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 10));
    second = register_module("second", torch::nn::Linear(10, 3));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(TwoLayers);

double replica_difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

std::vector<std::string> cpu_devices(size_t count) {
  return std::vector<std::string>(count, "cpu");
}

void take_step(const std::vector<Tensor>& parameters) {
  torch::NoGradGuard no_grad;
  for (Tensor parameter : parameters) {
    parameter.sub_(parameter.grad(), 0.1);
    parameter.mutable_grad().zero_();
  }
}

TEST(DataParallel, TrainsAsOneDeviceDoes) {
  for (size_t replicas : {1, 2, 3, 4}) {
    torch::manual_seed(1);
    TwoLayers one;
    TwoLayers net(std::dynamic_pointer_cast<TwoLayersImpl>(one->clone()));
    DataParallel parallel = data_parallel(net, cpu_devices(replicas));
    for (int i = 0; i < 10; ++i) {
      Tensor x = torch::randn({10, 6}, torch::kFloat64), y = torch::randn({10, 3}, torch::kFloat64);
      Tensor x1 = x.clone().requires_grad_(), x2 = x.clone().requires_grad_();
      Tensor expected = one(x1), got = parallel.forward(x2).tensor();
      EXPECT_LT(replica_difference(got, expected), 1e-10);
      (expected - y).square().mean().backward();
      (got - y).square().mean().backward();
      EXPECT_LT(replica_difference(x2.grad(), x1.grad()), 1e-10);
      for (size_t p = 0; p < one->parameters().size(); ++p)
        EXPECT_LT(replica_difference(net->parameters()[p].grad(), one->parameters()[p].grad()), 1e-10);
      take_step(one->parameters());
      take_step(net->parameters());
    }
    EXPECT_LT(replica_difference(net->parameters()[0], one->parameters()[0]), 1e-10);
  }
}

TEST(DataParallel, GradientsAddUpOverBackwardPasses) {
  TwoLayers net;
  DataParallel parallel = data_parallel(net, cpu_devices(2));
  Tensor x = torch::randn({4, 6}, torch::kFloat64);
  Tensor loss = parallel.forward(x).tensor().sum();
  loss.backward({}, /*retain_graph=*/true);
  Tensor once = net->first->weight.grad().clone();
  loss.backward();
  EXPECT_LT(replica_difference(net->first->weight.grad(), 2 * once), 1e-12);
  EXPECT_ANY_THROW(loss.backward());
}

TEST(DataParallel, UsesFewerReplicasForSmallBatches) {
  TwoLayers net;
  std::atomic<int> calls = 0;
  DataParallel parallel =
      data_parallel<TwoLayersImpl>(net.ptr(), cpu_devices(4), [&](TwoLayersImpl& m, const Nested& x) {
        ++calls;
        return Nested(m.forward(x.tensor()));
      });
  for (int rows : {1, 2, 3, 5}) {
    calls = 0;
    Tensor x = torch::randn({rows, 6}, torch::kFloat64);
    EXPECT_LT(replica_difference(parallel.forward(x).tensor(), net(x)), 1e-12);
    EXPECT_EQ(calls, rows == 5 ? 3 : rows);  // 2 + 2 + 1
  }
  EXPECT_EQ(parallel.forward(torch::zeros({0, 6}, torch::kFloat64)).tensor().size(0), 0);
}

TEST(DataParallel, TakesAndGivesAnyNesting) {
  TwoLayers net;
  // {x, {scale, {bias}}} -> {y, {sum, labels}}
  auto call = [](TwoLayersImpl& m, const Nested& in) {
    Tensor y = m.forward(in[0].tensor()) * in[1][0].tensor() + in[1][1][0].tensor();
    return Nested(Nested::List{y, Nested(Nested::List{y.sum(), y.argmax(1)})});
  };
  DataParallel parallel = data_parallel<TwoLayersImpl>(net.ptr(), cpu_devices(3), call);
  Tensor x = torch::randn({7, 6}, torch::kFloat64), bias = torch::randn({7, 3}, torch::kFloat64);
  Tensor scale = torch::tensor(2.0, torch::kFloat64).requires_grad_();
  bias.requires_grad_();
  Nested out = parallel.forward(Nested::List{x, Nested::List{scale, Nested::List{bias}}});
  Tensor expected = net(x) * 2 + bias;
  EXPECT_LT(replica_difference(out[0].tensor(), expected), 1e-12);
  EXPECT_EQ(out[1][0].tensor().sizes(), torch::IntArrayRef({3}));
  EXPECT_TRUE(out[1][1].tensor().equal(expected.argmax(1)));
  EXPECT_FALSE(out[1][1].tensor().requires_grad());
  (out[0].tensor().sum() + out[1][0].tensor().sum()).backward();
  EXPECT_LT(replica_difference(bias.grad(), torch::full({7, 3}, 2.0, torch::kFloat64)), 1e-12);
  EXPECT_LT(replica_difference(scale.grad(), 2 * net(x).sum()), 1e-10);
}

TEST(DataParallel, TakesAndGivesMaps) {
  torch::manual_seed(4);
  TwoLayers net;
  auto parallel =
      data_parallel<TwoLayersImpl>(net.ptr(), cpu_devices(2), [](TwoLayersImpl& module, const Nested& in) {
        Tensor y = module.forward(in["x"].tensor());
        return Nested(Nested::Map{{"y", y}, {"more", Nested::List{in["scale"].tensor() * y}}});
      });
  parallel.set_output_device(torch::kCPU);
  Tensor x = torch::randn({5, 6}, torch::kFloat64), scale = torch::tensor(2.0, torch::kFloat64);
  Nested out = parallel.forward(Nested::Map{{"x", x}, {"scale", scale}});
  EXPECT_LT(replica_difference(out["y"].tensor(), net->forward(x)), 1e-12);
  EXPECT_LT(replica_difference(out["more"][0].tensor(), 2 * net->forward(x)), 1e-12);
  out["more"][0].tensor().sum().backward();
  EXPECT_TRUE(net->first->weight.grad().defined());
  Nested list = Nested::List{x};
  EXPECT_THROW(gather({out, list}, 0), ConfigError);
}

TEST(DataParallel, CutsAlongAnotherDimension) {
  TwoLayers net;
  auto call = [](TwoLayersImpl& m, const Nested& in) { return Nested(m.forward(in.tensor().t()).t()); };
  DataParallel parallel = data_parallel<TwoLayersImpl>(net.ptr(), cpu_devices(2), call, /*dim=*/1);
  Tensor x = torch::randn({6, 5}, torch::kFloat64);
  EXPECT_LT(replica_difference(parallel.forward(x).tensor(), net(x.t()).t()), 1e-12);
}

TEST(DataParallel, NamesTheReplicaThatFailed) {
  TwoLayers net;
  bool fail = true;
  auto call = [&](TwoLayersImpl& m, const Nested& in) {
    if (fail && in.tensor()[0][0].item<double>() > 5) throw ConfigError("too large");
    return Nested(m.forward(in.tensor()));
  };
  DataParallel parallel = data_parallel<TwoLayersImpl>(net.ptr(), cpu_devices(3), call);
  Tensor x = torch::zeros({3, 6}, torch::kFloat64);
  x[1][0] = 10;
  try {
    parallel.forward(x);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("replica 1 of 3 on cpu: too large"));
  }
  fail = false;
  EXPECT_EQ(parallel.forward(x).tensor().size(0), 3);
}

// What the other replicas had computed when one failed must not come with the next backward().
TEST(DataParallel, ABackwardThatFailedLeavesNothingBehind) {
  TwoLayers net, one(std::dynamic_pointer_cast<TwoLayersImpl>(net->clone()));
  bool fail = true;
  auto call = [&](TwoLayersImpl& m, const Nested& in) {
    Tensor hidden = torch::tanh(m.first(in.tensor()));
    if (fail && in.tensor()[0][0].item<double>() > 5)
      hidden.register_hook([](const Tensor&) -> Tensor { throw ConfigError("no memory"); });
    return Nested(m.second(hidden));
  };
  DataParallel parallel = data_parallel<TwoLayersImpl>(net.ptr(), cpu_devices(3), call);
  Tensor x = torch::rand({6, 6}, torch::kFloat64).requires_grad_();
  Tensor bad = x.detach().clone();
  bad[2][0] = 10;
  EXPECT_THROW(parallel.forward(bad).tensor().square().sum().backward(), Error);
  net->zero_grad();
  fail = false;
  parallel.forward(x).tensor().square().sum().backward();
  one(x.detach()).square().sum().backward();
  for (size_t p = 0; p < one->parameters().size(); ++p)
    EXPECT_LT(replica_difference(net->parameters()[p].grad(), one->parameters()[p].grad()), 1e-12);
}

TEST(DataParallel, FollowsModesFrozenParametersAndGradMode) {
  TwoLayers net;
  std::atomic<int> training = 0;
  auto call = [&](TwoLayersImpl& m, const Nested& in) {
    training += m.second->is_training();
    return Nested(m.forward(in.tensor()));
  };
  DataParallel parallel = data_parallel<TwoLayersImpl>(net.ptr(), cpu_devices(2), call);
  Tensor x = torch::randn({4, 6}, torch::kFloat64);
  net->second->eval();
  net->first->weight.requires_grad_(false);
  parallel.forward(x).tensor().sum().backward();
  EXPECT_EQ(training, 0);
  EXPECT_FALSE(net->first->weight.grad().defined());
  EXPECT_TRUE(net->second->weight.grad().defined());
  torch::NoGradGuard no_grad;
  EXPECT_FALSE(parallel.forward(x).tensor().requires_grad());
}

TEST(DataParallel, KeepsTheStatisticsOfTheFirstReplica) {
  auto norm = std::make_shared<torch::nn::BatchNorm1dImpl>(3);
  torch::nn::BatchNorm1d half(3);
  DataParallel parallel = data_parallel<torch::nn::BatchNorm1dImpl>(
      norm, cpu_devices(2), [](auto& m, const Nested& in) { return Nested(m.forward(in.tensor())); });
  Tensor x = torch::randn({8, 3});
  for (int i = 0; i < 2; ++i) {
    parallel.forward(x);
    half(x.narrow(0, 0, 4));
  }
  EXPECT_LT(replica_difference(norm->running_mean, half->running_mean), 1e-7);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 2);
}

TEST(DataParallel, RefusesWhatDoesNotFit) {
  auto forward = [](size_t, const Nested& x) { return x; };
  EXPECT_THROW(DataParallel({}, forward), ConfigError);
  auto a = torch::nn::Linear(2, 3), b = torch::nn::Linear(2, 4);
  EXPECT_THROW(DataParallel({a.ptr(), b.ptr()}, forward), ConfigError);
  EXPECT_THROW(DataParallel({a.ptr(), torch::nn::BatchNorm1d(3).ptr()}, forward), ConfigError);
  DataParallel parallel({a.ptr()}, forward);
  EXPECT_THROW(parallel.forward(Nested::List{torch::zeros({2}), torch::zeros({3})}), ConfigError);
}

}  // namespace
}  // namespace yoke
