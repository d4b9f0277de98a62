#include "yoke/optim/averaging.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>

namespace yoke::optim {
namespace {

using torch::Tensor;

struct Net {
  explicit Net(torch::ScalarType type = torch::kDouble) {
    torch::manual_seed(2);
    w = torch::randn({4, 3}, torch::kDouble).to(type).requires_grad_();
  }
  void run(Optimizer& optimizer, int from, int to) const {
    for (int step = from; step < to; ++step) {
      torch::NoGradGuard no_grad;
      w.mutable_grad() = torch::sin(w * (step + 1));
      optimizer.step(0.1);
    }
  }
  std::vector<NamedTensor> named() const { return {{"w", w}}; }
  Tensor w;
};

OptimizerOptions options_with(double ema) {
  OptimizerOptions options;
  options.optimizer = "adamw";
  options.ema = ema;
  return options;
}

Tensor average_of(Optimizer& optimizer) {
  for (const auto& [name, tensor] : optimizer.state())
    if (name == "ema/w") return tensor;
  return {};
}

TEST(MovingAverage, FollowsItsFormulaAndDoesNotTouchTheTraining) {
  Net with, without;
  auto averaging = make(options_with(0.6), with.named()), plain = make(options_with(0), without.named());
  Tensor expected = with.w.detach().clone();
  for (int step = 0; step < 12; ++step) {
    with.run(*averaging, step, step + 1);
    without.run(*plain, step, step + 1);
    const double decay = std::min(0.6, (1.0 + step) / (10.0 + step));
    expected = decay * expected + (1 - decay) * with.w.detach();
  }
  EXPECT_TRUE(with.w.equal(without.w));
  EXPECT_TRUE(average_of(*averaging).allclose(expected, 1e-12, 1e-14));
}

TEST(MovingAverage, IsExchangedAndBack) {
  for (torch::ScalarType type : {torch::kDouble, torch::kBFloat16}) {
    Net net(type);
    auto optimizer = make(options_with(0.6), net.named());
    net.run(*optimizer, 0, 5);
    const Tensor weights = net.w.detach().clone(), average = average_of(*optimizer).clone();
    EXPECT_TRUE(exchange_average(*optimizer));
    EXPECT_TRUE(net.w.equal(average.to(type)));
    EXPECT_TRUE(exchange_average(*optimizer));
    EXPECT_TRUE(net.w.equal(weights));
    EXPECT_TRUE(average_of(*optimizer).equal(average));
  }
  Net net;
  EXPECT_FALSE(exchange_average(*make(options_with(0), net.named())));
}

// Low-precision weights round away what changes slowly; their masters do not.
TEST(MovingAverage, IsOfTheMasters) {
  Net net(torch::kBFloat16);
  auto optimizer = make(options_with(0.6), net.named());
  EXPECT_EQ(average_of(*optimizer).scalar_type(), torch::kFloat);
}

TEST(MovingAverage, CopyingItsStateGoesOnBitForBit) {
  Net straight, resumed;
  auto whole = make(options_with(0.9), straight.named()), before = make(options_with(0.9), resumed.named());
  straight.run(*whole, 0, 8);
  resumed.run(*before, 0, 3);
  auto after = make(options_with(0.9), resumed.named());
  const std::vector<NamedTensor> from = before->state(), to = after->state();
  for (size_t i = 0; i < from.size(); ++i) to[i].second.copy_(from[i].second);
  resumed.run(*after, 3, 8);
  EXPECT_TRUE(average_of(*whole).equal(average_of(*after)));
}

}  // namespace
}  // namespace yoke::optim
