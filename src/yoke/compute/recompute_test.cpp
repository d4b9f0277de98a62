#include "yoke/compute/recompute.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <memory>
#include <stdexcept>

#include "yoke/compute/layers.h"
#include "yoke/compute/memory_meter.h"
#include "yoke/compute/precision.h"

namespace yoke {
namespace {

using Tensors = std::vector<torch::Tensor>;

// Blocks of linear, ReLU and dropout 0.5, with everything that training changes.
struct Chain {
  explicit Chain(size_t length, torch::ScalarType type = torch::kFloat) {
    torch::manual_seed(7);
    input = torch::randn({5, 8}, type).requires_grad_();
    for (size_t i = 0; i < length; ++i) {
      torch::Tensor weight = torch::randn({8, 8}, type).requires_grad_();
      weights.push_back(weight);
      blocks.push_back([this, weight](const Tensors& x) {
        ++calls;
        return Tensors{torch::dropout(torch::relu(compute::linear(x[0], weight, {})), 0.5, true)};
      });
    }
  }

  // Loss, then the gradients of the input and of all weights.
  Tensors train(const std::string& policy) {
    torch::manual_seed(3);
    std::vector<compute::BlockCost> costs(blocks.size());
    torch::Tensor loss = run_blocks(blocks, {input}, compute::recompute_segments(policy, costs))[0]
                             .to(torch::kFloat)
                             .square()
                             .sum();
    loss.backward();
    Tensors results = {loss.detach(), torch::rand({3})};  // and the random numbers that follow
    for (torch::Tensor* leaf : leaves()) {
      results.push_back(leaf->grad());
      leaf->mutable_grad().reset();
    }
    return results;
  }
  std::vector<torch::Tensor*> leaves() {
    std::vector<torch::Tensor*> all = {&input};
    for (torch::Tensor& weight : weights) all.push_back(&weight);
    return all;
  }

  torch::Tensor input;
  Tensors weights;
  std::vector<RecomputeFunction> blocks;
  size_t calls = 0;
};

void expect_equal(const Tensors& a, const Tensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << what << ", tensor " << i;
}

TEST(Recompute, GradientsAreBitIdenticalUnderEveryPolicy) {
  for (torch::ScalarType type : {torch::kFloat, torch::kDouble}) {
    Chain chain(9, type);
    Tensors plain = chain.train("none");
    EXPECT_GT(plain[2].abs().sum().item<double>(), 0);
    for (const char* policy : {"blocks", "sqrt", "budget:7"}) {
      expect_equal(chain.train(policy), plain, policy);
    }
  }
}

TEST(Recompute, BlocksRunAsOftenAsTheFormulaSays) {
  Chain chain(16);
  for (auto [policy, calls] : {std::pair("none", 16), std::pair("sqrt", 28), std::pair("blocks", 31)}) {
    chain.calls = 0;
    chain.train(policy);
    EXPECT_EQ(chain.calls, static_cast<size_t>(calls)) << policy;
  }
}

TEST(Recompute, GradientsAreBitIdenticalUnderAutocast) {
  Chain chain(6);
  auto train = [&](const char* policy) {
    AutocastGuard autocast(torch::kCPU, Precision::kBf16);
    return chain.train(policy);
  };
  Tensors plain = train("none");
  EXPECT_FALSE(plain[0].equal(chain.train("none")[0]));  // bf16 did happen
  expect_equal(train("blocks"), plain, "blocks");

  // Backward after the guard has ended computes in the precision of forward.
  auto backward_outside = [&](const char* policy) {
    torch::manual_seed(3);
    torch::Tensor out;
    {
      AutocastGuard autocast(torch::kCPU, Precision::kBf16);
      std::vector<compute::BlockCost> costs(6);
      out = run_blocks(chain.blocks, {chain.input}, compute::recompute_segments(policy, costs))[0];
    }
    EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
    out.sum().backward();
    Tensors gradients;
    for (torch::Tensor* leaf : chain.leaves()) {
      gradients.push_back(leaf->grad());
      leaf->mutable_grad().reset();
    }
    return gradients;
  };
  expect_equal(backward_outside("sqrt"), backward_outside("none"), "sqrt");
}

TEST(Recompute, AWeightUsedInsideAndOutsideKeepsBothGradientsUnderAutocast) {
  torch::Tensor weight = torch::randn({4, 4}).requires_grad_();
  torch::Tensor x = torch::randn({2, 4});
  auto layer = [&](const Tensors& v) { return Tensors{compute::linear(v[0], weight, {})}; };
  auto gradient = [&](bool again) {
    AutocastGuard autocast(torch::kCPU, Precision::kBf16);
    Tensors hidden = again ? recompute(layer, {x}) : layer({x});
    layer(hidden)[0].sum().backward();
    torch::Tensor result = weight.grad();
    weight.mutable_grad().reset();
    return result;
  };
  EXPECT_TRUE(gradient(true).allclose(gradient(false), 0.02, 0.02));
}

TEST(Recompute, BatchNormStatisticsAreUpdatedOnce) {
  auto train = [](bool again) {
    torch::manual_seed(1);
    torch::nn::BatchNorm2d norm(3);
    torch::Tensor x = torch::randn({4, 3, 5, 5}).requires_grad_();
    auto block = [&](const Tensors& v) { return Tensors{compute::batch_norm(*norm, v[0]).sin()}; };
    Tensors y = again ? recompute(block, {x}) : block({x});
    y[0].square().sum().backward();
    return Tensors{y[0].detach(),      x.grad(),          norm->weight.grad(),      norm->bias.grad(),
                   norm->running_mean, norm->running_var, norm->num_batches_tracked};
  };
  expect_equal(train(true), train(false), "batch norm");
  EXPECT_EQ(train(true).back().item<int64_t>(), 1);
}

TEST(Recompute, InputsNeedNoGradientWhereParametersDo) {
  torch::Tensor table = torch::randn({10, 4}).requires_grad_();
  torch::Tensor ids = torch::tensor({1, 5, 5, 0});
  auto embed = [&](const Tensors& x) { return Tensors{torch::embedding(table, x[0]).tanh(), x[0], {}}; };
  Tensors outputs = recompute(embed, {ids});
  EXPECT_TRUE(outputs[1].equal(ids));
  EXPECT_FALSE(outputs[1].requires_grad());
  EXPECT_FALSE(outputs[2].defined());
  outputs[0].sum().backward();
  torch::Tensor again = table.grad();
  table.mutable_grad().reset();
  embed({ids})[0].sum().backward();
  EXPECT_TRUE(again.equal(table.grad()));
}

TEST(Recompute, OutputsMayBeInputsOrViewsOrUnusedAndHaveSeveralConsumers) {
  auto gradients = [](bool again) {
    torch::manual_seed(5);
    torch::Tensor x = torch::randn({3, 4}).requires_grad_(), y = torch::randn({3, 4}).requires_grad_();
    auto f = [](const Tensors& v) { return Tensors{v[0], v[1].t(), v[0] * v[1], v[1].exp()}; };
    torch::Tensor hidden = x * 2;
    Tensors out = again ? recompute(f, {hidden, y}) : f({hidden, y});
    (out[0].sin().sum() + out[1].square().sum() + (out[2] * out[2].cos()).sum()).backward();
    return Tensors{x.grad(), y.grad()};
  };
  expect_equal(gradients(true), gradients(false), "outputs");
}

TEST(Recompute, CallsNest) {
  Chain chain(4);
  Tensors plain = chain.train("none");
  std::vector<RecomputeFunction> inner = chain.blocks;
  for (size_t i = 0; i < 4; ++i) {
    chain.blocks[i] = [&inner, i](const Tensors& x) { return recompute(inner[i], x); };
  }
  chain.calls = 0;
  expect_equal(chain.train("sqrt"), plain, "nested");
  EXPECT_EQ(chain.calls,
            2u * 3 + 2u * 2);  // twice in the outer function and once in the inner; the last segment: twice
}

TEST(Recompute, SaysWhenItRunsAgain) {
  std::vector<bool> seen;
  auto f = [&](const Tensors& x) {
    seen.push_back(in_recomputation());
    return Tensors{x[0].exp()};
  };
  recompute(f, {torch::ones({2}).requires_grad_()})[0].sum().backward();
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(in_recomputation());
}

// Of two that wait for the end, the second throws: the first must not run behind somebody else's backward.
TEST(Recompute, WhatWaitsForTheEndIsForgottenWhenAnInnerBackwardFails) {
  int ran = 0;
  torch::Tensor weight = torch::ones({2}).requires_grad_();
  bool fail = true;
  auto f = [&](const Tensors& x) {
    torch::Tensor y = x[0] * weight;
    if (in_recomputation())
      y.register_hook([&](const torch::Tensor&) {
        at_end_of_backward([&] { ++ran; });
        if (fail)
          torch::autograd::Engine::get_default_engine().queue_callback(
              [] { throw std::runtime_error("no memory"); });
      });
    return Tensors{y};
  };
  EXPECT_THROW(recompute(f, {torch::ones({2})})[0].sum().backward(), std::exception);
  EXPECT_EQ(ran, 0);
  EXPECT_FALSE(in_recomputation());
  fail = false;
  recompute(f, {torch::ones({2})})[0].sum().backward();
  EXPECT_EQ(ran, 1);
  (weight * 2).sum().backward();
  EXPECT_EQ(ran, 1);
}

TEST(Recompute, NoSegmentsMeanThatNothingIsRecomputed) {
  Chain chain(3);
  chain.calls = 0;
  run_blocks(chain.blocks, {chain.input}, {})[0].sum().backward();
  EXPECT_EQ(chain.calls, 3u);
}

TEST(Recompute, WithoutGradientsItIsAPlainCall) {
  torch::NoGradGuard no_grad;
  int calls = 0;
  auto f = [&](const Tensors& x) { return ++calls, Tensors{x[0] * 2}; };
  EXPECT_FALSE(recompute(f, {torch::ones({2})})[0].requires_grad());
  EXPECT_EQ(calls, 1);
}

TEST(Recompute, ErrorsInTheFunctionReachTheCaller) {
  auto always = [](const Tensors&) -> Tensors { throw std::runtime_error("forward broke"); };
  EXPECT_THROW(recompute(always, {torch::ones({2}).requires_grad_()}), std::runtime_error);

  auto later = [](const Tensors& x) -> Tensors {
    if (in_recomputation()) throw std::runtime_error("rerun broke");
    return {x[0] * 2};
  };
  torch::Tensor y = recompute(later, {torch::ones({2}).requires_grad_()})[0].sum();
  EXPECT_THROW(y.backward(), std::exception);
  EXPECT_FALSE(in_recomputation());

  auto moody = [](const Tensors& x) { return in_recomputation() ? Tensors{} : Tensors{x[0] * 2}; };
  EXPECT_THROW(recompute(moody, {torch::ones({2}).requires_grad_()})[0].sum().backward(), std::exception);
}

torch::Tensor squares(const torch::Tensor& x) {
  return x * x;
}

TEST(Recompute, TakesFunctionsOfOneTensorAsTheyAre) {
  torch::Tensor x = torch::tensor({1.0, 2.0, 3.0}).requires_grad_();
  auto expect_squares = [&](const torch::Tensor& y) {
    x.mutable_grad().reset();
    y.sum().backward();
    EXPECT_TRUE(x.grad().equal(2 * x.detach()));
  };
  expect_squares(recompute([](const torch::Tensor& v) { return v * v; }, x));
  expect_squares(recompute([](auto& v) { return v * v; }, {x}));  // generic: a list of one is a tensor
  expect_squares(recompute(squares, x));
  expect_squares(recompute([](const Tensors& v) { return Tensors{v[0] * v[0]}; }, {x})[0]);
  expect_squares(recompute([](const auto& v) { return std::vector{v[0] * v[0]}; }, Tensors{x})[0]);

  torch::nn::Linear layer(3, 1);
  recompute(layer, x).backward();
  EXPECT_TRUE(layer->weight.grad().flatten().equal(x.detach()));
}

TEST(Recompute, NoticesInputsChangedBeforeBackward) {
  torch::Tensor x = torch::ones({2}).requires_grad_() * 1;
  torch::Tensor y = recompute([](const Tensors& v) { return Tensors{v[0].exp()}; }, {x})[0].sum();
  x.mul_(2);
  EXPECT_THROW(y.backward(), std::exception);
}

TEST(Recompute, FreesWhatItKeptAfterBackward) {
  auto captured = std::make_shared<int>(1);
  torch::Tensor x = torch::ones({2}).requires_grad_();
  torch::Tensor y = recompute([captured](const Tensors& v) { return Tensors{v[0].exp()}; }, {x})[0].sum();
  EXPECT_GT(captured.use_count(), 1);
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_TRUE(x.grad().equal(2 * torch::ones({2}).exp()));
  EXPECT_THROW(y.backward(), std::exception);
}

// A chain of equal blocks, each of which leaves one tensor for backward.
int64_t peak_units(size_t length, const std::string& policy) {
  constexpr int64_t kUnit = 1 << 16;
  std::vector<RecomputeFunction> blocks(length, [](const Tensors& x) { return Tensors{x[0].sin()}; });
  std::vector<compute::BlockCost> costs(length);
  torch::Tensor x = torch::ones({kUnit / 4}).requires_grad_();
  auto segments = compute::recompute_segments(policy, costs);
  compute::MemoryMeter meter;
  run_blocks(blocks, {x}, segments)[0].sum().backward();
  return (meter.peak_bytes() + kUnit / 2) / kUnit;
}

TEST(Recompute, PeakMemoryOfAUniformChainFollowsTheFormula) {
  EXPECT_GE(peak_units(64, "none"), 64);
  EXPECT_LE(peak_units(64, "sqrt"), 16 + 4);
  EXPECT_LE(peak_units(16, "sqrt"), 8 + 4);
  EXPECT_LE(peak_units(64, "budget:30"), 30 + 4);
}

TEST(MeasureBlocks, CountsWhatEachBlockLeavesAndChangesNothing) {
  torch::manual_seed(9);
  torch::Tensor x = torch::ones({1 << 12}).requires_grad_();
  std::vector<RecomputeFunction> blocks = {
      [](const Tensors& v) { return Tensors{v[0].sin()}; },
      [](const Tensors& v) { return Tensors{v[0].sin() * torch::rand({1 << 12})}; }};
  auto costs = measure_blocks(blocks, {x});
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].input_bytes, 4 << 12);
  EXPECT_EQ(costs[0].activation_bytes, 4 << 12);
  EXPECT_EQ(costs[1].activation_bytes, 2 * (4 << 12));  // random numbers and product
  torch::Tensor after = torch::rand({3});
  torch::manual_seed(9);
  EXPECT_TRUE(torch::rand({3}).equal(after));
}

}  // namespace
}  // namespace yoke
