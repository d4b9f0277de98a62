// LARS, LAMB and Lion beside their formulas, written out here in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/optim/layer_sums.h"
#include "yoke/optim/optimizer.h"

namespace yoke::optim {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

OptimizerOptions options_of(const char* name) {
  OptimizerOptions options;
  options.optimizer = name;
  options.weight_decay = 0.02;
  options.momentum = 0.9;
  options.trust = 0.01;
  if (std::string(name) == "lion") options.beta2 = 0.99;
  return options;
}

struct Layers {
  explicit Layers(torch::ScalarType type) {
    torch::manual_seed(1);
    weight = torch::randn({3, 4}, torch::kDouble).to(type).requires_grad_();
    bias = torch::randn({3}, torch::kDouble).to(type).requires_grad_();
  }
  std::vector<NamedTensor> named() const { return {{"fc.weight", weight}, {"fc.bias", bias}}; }
  void set_gradients(int step) const {
    torch::NoGradGuard no_grad;
    weight.mutable_grad() = torch::sin(weight * (step + 1));
    bias.mutable_grad() = torch::cos(bias + step);
  }
  Tensor weight, bias;
};

// The reference: one parameter, element by element.
struct Reference {
  OptimizerOptions o;
  std::vector<double> w, m, v;
  bool scaled;
  int number = 0;

  Reference(OptimizerOptions options, const Tensor& start, bool is_matrix)
      : o(std::move(options)), scaled(is_matrix) {
    const Tensor flat = start.detach().flatten();
    for (int64_t i = 0; i < flat.numel(); ++i) w.push_back(flat[i].item<double>());
    m.assign(w.size(), 0);
    v.assign(w.size(), 0);
  }
  static double norm(const std::vector<double>& x) {
    double sum = 0;
    for (double one : x) sum += one * one;
    return std::sqrt(sum);
  }
  void lars(const std::vector<double>& g, double lr) {
    const double ratio = scaled ? o.trust * norm(w) / (norm(g) + o.weight_decay * norm(w) + 1e-8) : 1;
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = o.momentum * m[i] + ratio * (g[i] + o.weight_decay * w[i]);
      w[i] -= lr * m[i];
    }
  }
  void lamb(const std::vector<double>& g, double lr) {
    ++number;
    std::vector<double> r(w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(o.beta1, number)),
                   square = v[i] / (1 - std::pow(o.beta2, number));
      r[i] = mean / (std::sqrt(square) + 1e-6) + o.weight_decay * w[i];
    }
    const double ratio = scaled ? norm(w) / norm(r) : 1;
    for (size_t i = 0; i < w.size(); ++i) w[i] -= lr * ratio * r[i];
  }
  void lion(const std::vector<double>& g, double lr) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double c = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      w[i] = w[i] * (1 - lr * o.weight_decay) - lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
      m[i] = o.beta2 * m[i] + (1 - o.beta2) * g[i];
    }
  }
  void step(const Tensor& gradient, double lr) {
    const Tensor flat = gradient.flatten();
    std::vector<double> g;
    for (int64_t i = 0; i < flat.numel(); ++i) g.push_back(flat[i].item<double>());
    if (o.optimizer == "lars") lars(g, lr);
    if (o.optimizer == "lamb") lamb(g, lr);
    if (o.optimizer == "lion") lion(g, lr);
  }
  double apart(const Tensor& tensor) const {
    return (tensor.detach().flatten().to(torch::kDouble) - torch::tensor(w, torch::kDouble))
        .abs()
        .max()
        .item<double>();
  }
};

class Layerwise : public ::testing::TestWithParam<const char*> {};

TEST_P(Layerwise, GivesTheNumbersOfItsFormula) {
  for (auto [type, tolerance] : {std::pair(torch::kDouble, 1e-12), std::pair(torch::kFloat, 1e-5)}) {
    Layers net(type);
    const OptimizerOptions options = options_of(GetParam());
    Reference weight(options, net.weight, true), bias(options, net.bias, false);
    auto optimizer = make(options, net.named());
    for (int step = 0; step < 6; ++step) {
      net.set_gradients(step);
      const double lr = 0.1 / (1 + step);
      weight.step(net.weight.grad(), lr);
      bias.step(net.bias.grad(), lr);
      optimizer->step(lr);
    }
    EXPECT_LT(weight.apart(net.weight), tolerance) << type;
    EXPECT_LT(bias.apart(net.bias), tolerance) << type;
  }
}

TEST_P(Layerwise, CopyingItsStateGoesOnBitForBit) {
  for (torch::ScalarType type : {torch::kFloat, torch::kBFloat16}) {
    Layers straight(type), resumed(type);
    auto whole = make(options_of(GetParam()), straight.named()),
         before = make(options_of(GetParam()), resumed.named());
    auto run = [](const Layers& net, Optimizer& optimizer, int from, int to) {
      for (int step = from; step < to; ++step) {
        net.set_gradients(step);
        optimizer.step(0.1);
      }
    };
    run(straight, *whole, 0, 6);
    run(resumed, *before, 0, 3);
    auto after = make(options_of(GetParam()), resumed.named());
    const std::vector<NamedTensor> from = before->state(), to = after->state();
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) to[i].second.copy_(from[i].second);
    run(resumed, *after, 3, 6);
    EXPECT_TRUE(straight.weight.equal(resumed.weight));
    EXPECT_TRUE(straight.bias.equal(resumed.bias));
  }
}

TEST_P(Layerwise, SparseGradientsAreRefused) {
  Tensor w = torch::ones({4, 2}, torch::kDouble).requires_grad_();
  w.mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{1}}), torch::ones({1, 2}, torch::kDouble), {4, 2});
  auto optimizer = make(options_of(GetParam()), {{"embedding", w}});
  EXPECT_THAT([&] { optimizer->step(0.1); }, ThrowsMessage<ConfigError>(HasSubstr("'embedding'")));
}

TEST_P(Layerwise, ZeroWeightsAndGradientsStayFinite) {
  Tensor w = torch::zeros({3, 4}, torch::kDouble).requires_grad_();
  auto optimizer = make(options_of(GetParam()), {{"w", w}});
  for (int step = 0; step < 3; ++step) {
    torch::NoGradGuard no_grad;
    w.mutable_grad() = step == 0 ? torch::zeros({3, 4}, torch::kDouble) : torch::ones({3, 4}, torch::kDouble);
    optimizer->step(0.1);
    EXPECT_TRUE(w.isfinite().all().item<bool>()) << step;
  }
  EXPECT_GT(w.abs().max().item<double>(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Layerwise, ::testing::Values("lars", "lamb", "lion"));

// Two optimizers hold a half of the layer each, as ranks that shard do, the second one with padding behind
// it.
TEST(LayerSums, PiecesWithCompletedSumsEqualTheWhole) {
  for (const char* name : {"lars", "lamb"}) {
    Layers net(torch::kDouble);
    OptimizerOptions options = options_of(name);
    options.settings = {{"fc.weight", {.weight_decay = 0.02, .matrix = true}},
                        {"fc.bias", {.weight_decay = 0.02, .matrix = false}}};
    const Tensor flat = net.weight.detach().flatten().clone();
    Tensor first = flat.narrow(0, 0, 5).clone().requires_grad_(),
           second = flat.narrow(0, 5, 7).clone().requires_grad_();
    Tensor padding = torch::zeros({1}, torch::kDouble).requires_grad_();
    auto whole = make(options, net.named());
    auto left = make(options, {{"fc.weight@0:5", first}});
    auto right = make(options, {{"fc.weight@5:12", second}, {"padding", padding}});
    // What the other rank would add: its sums of the same step.
    std::vector<Tensor> sums(2);
    bool exchange = false;
    auto completes = [&](int rank) {
      return [&, rank](Tensor& own) {
        if (exchange)
          own.copy_(sums[0] + sums[1]);
        else
          sums[static_cast<size_t>(rank)] = own.clone();
      };
    };
    EXPECT_TRUE(complete_layer_sums(*left, {{"fc.weight", "fc.bias"}, {0}, completes(0)}));
    EXPECT_TRUE(complete_layer_sums(*right, {{"fc.weight", "fc.bias"}, {0}, completes(1)}));
    net.set_gradients(0);
    const Tensor gradient = net.weight.grad().flatten();
    auto pieces_step = [&] {
      first.mutable_grad() = gradient.narrow(0, 0, 5).clone();
      second.mutable_grad() = gradient.narrow(0, 5, 7).clone();
      padding.mutable_grad() = torch::full({1}, 3.0, torch::kDouble);
      left->step(0.1);
      right->step(0.1);
    };
    // Once to learn the sums, then from the start again.
    std::vector<NamedTensor> states[] = {left->state(), right->state()};
    pieces_step();
    {
      torch::NoGradGuard no_grad;
      first.copy_(flat.narrow(0, 0, 5));
      second.copy_(flat.narrow(0, 5, 7));
      for (auto& state : states)
        for (auto& [key, tensor] : state) tensor.zero_();
    }
    exchange = true;
    pieces_step();
    whole->step(0.1);
    EXPECT_TRUE(torch::cat({first, second}).allclose(net.weight.flatten(), 1e-12, 1e-14)) << name;
  }
  Layers net(torch::kDouble);
  EXPECT_FALSE(complete_layer_sums(*make(options_of("lion"), net.named()), {}));
}

TEST(Lion, TheKernelOfServersGivesTheSameBits) {
  Layers net(torch::kFloat);
  const OptimizerOptions options = options_of("lion");
  std::vector<float> w(net.weight.data_ptr<float>(), net.weight.data_ptr<float>() + 12), momentum(12, 0.0F);
  auto optimizer = make(options, net.named());
  for (int step = 0; step < 5; ++step) {
    net.set_gradients(step);
    const Tensor gradient = net.weight.grad().contiguous();
    kernels::lion<float>({0.01, options.beta1, options.beta2, options.weight_decay}, 1,
                         gradient.const_data_ptr<float>(), w.data(), w.data(), momentum.data(), 12);
    optimizer->step(0.01);
  }
  EXPECT_TRUE(torch::tensor(w).allclose(net.weight.flatten(), 1e-6, 1e-7));
}

}  // namespace
}  // namespace yoke::optim
