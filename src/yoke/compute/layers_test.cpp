#include "yoke/compute/layers.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "yoke/compute/conv_path.h"

namespace yoke::compute {
namespace {

using torch::Tensor;
using Layer = std::function<Tensor(const std::vector<Tensor>&)>;

std::vector<Tensor> leaves_of(const std::vector<Tensor>& inputs, at::ScalarType type) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(
        input.is_floating_point() ? input.detach().to(type, false, /*copy=*/true).requires_grad_() : input);
  }
  return leaves;
}

// Output and all gradients of ours in fp32 equal LibTorch's in fp64 to fp32's rounding.
void expect_same(const Layer& ours, const Layer& theirs, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> a = leaves_of(inputs, at::kFloat), b = leaves_of(inputs, at::kDouble);
  Tensor y = ours(a), expected = theirs(b);
  ASSERT_EQ(y.sizes(), expected.sizes());
  double scale = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LE((y.to(at::kDouble) - expected).abs().max().item<double>(), 1e-5 * scale);
  Tensor grad = torch::randn_like(expected);
  expected.backward(grad);
  y.backward(grad.to(at::kFloat));
  for (size_t i = 0; i < a.size(); ++i) {
    if (!inputs[i].is_floating_point()) continue;
    ASSERT_TRUE(a[i].grad().defined()) << "input " << i;
    double most = std::max(1.0, b[i].grad().abs().max().item<double>());
    EXPECT_LE((a[i].grad().to(at::kDouble) - b[i].grad()).abs().max().item<double>(), 1e-5 * most)
        << "input " << i;
  }
}

// fp64 takes LibTorch's operators: gradients must pass the finite-difference test there too.
void expect_gradients(const Layer& layer, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves = leaves_of(inputs, at::kDouble);
  Tensor weights = torch::randn_like(layer(leaves));
  (layer(leaves) * weights).sum().backward();
  torch::NoGradGuard no_grad;
  for (Tensor& leaf : leaves) {
    if (!leaf.is_floating_point()) continue;
    Tensor direction = torch::randn_like(leaf);
    double h = 1e-6;
    leaf.add_(direction, h);
    double high = (layer(leaves) * weights).sum().item<double>();
    leaf.sub_(direction, 2 * h);
    double low = (layer(leaves) * weights).sum().item<double>();
    leaf.add_(direction, h);
    double expected = (leaf.grad() * direction).sum().item<double>();
    EXPECT_NEAR((high - low) / (2 * h), expected, 1e-5 * (1 + std::abs(expected)));
  }
}

class Layers : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  void TearDown() override { ConvChoices::global().clear(); }
};

struct ConvCase {
  std::array<int64_t, 4> x, weight;
  ConvShape shape;
};

std::vector<ConvCase> conv_cases() {
  return {{{3, 1, 28, 28}, {6, 1, 5, 5}, {{1, 1}, {2, 2}}}, {{2, 6, 14, 14}, {16, 6, 5, 5}, {}},
          {{3, 5, 9, 7}, {4, 5, 3, 3}, {{2, 2}, {1, 1}}},   {{2, 8, 6, 6}, {7, 8, 1, 1}, {}},
          {{2, 8, 6, 6}, {7, 8, 1, 1}, {{2, 2}, {0, 0}}},   {{1, 3, 16, 16}, {8, 3, 7, 7}, {{2, 2}, {3, 3}}},
          {{2, 3, 5, 8}, {4, 3, 1, 5}, {{1, 1}, {0, 2}}}};
}

TEST_F(Layers, EveryWayOfConvolvingEqualsLibTorchInBothMemoryFormats) {
  for (const char* mode : {"onednn", "native", "channels_last", "direct"}) {
    ConvChoices::global().set_mode(mode);
    for (const ConvCase& c : conv_cases()) {
      for (bool pixels : {false, true}) {
        for (bool with_bias : {false, true}) {
          SCOPED_TRACE(fmt::format("{} pixels {} bias {} kernel {}", mode, pixels, with_bias, c.weight[2]));
          auto in = [&](const Tensor& x) {
            return pixels ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
          };
          std::vector<Tensor> inputs = {torch::randn(c.x), torch::randn(c.weight)};
          if (with_bias) inputs.push_back(torch::randn(c.weight[0]));
          expect_same(
              [&](const auto& v) { return conv2d(in(v[0]), v[1], with_bias ? v[2] : Tensor(), c.shape); },
              [&](const auto& v) {
                return at::conv2d(v[0], v[1], with_bias ? std::optional(v[2]) : std::nullopt, c.shape.stride,
                                  c.shape.padding);
              },
              inputs);
        }
      }
    }
  }
}

TEST_F(Layers, ConvolutionGivesTheSameBitsAgainOnceItsWayIsChosen) {
  Tensor x = torch::randn({4, 6, 14, 14}), weight = torch::randn({16, 6, 5, 5});
  Tensor first = compute::conv2d(x, weight, {});
  EXPECT_TRUE(compute::conv2d(x, weight, {}).equal(first));
  nlohmann::json choices = ConvChoices::global().to_json();
  EXPECT_EQ(choices["choices"].size(), 1u);
  ConvChoices::global().clear();
  ConvChoices::global().import_json(choices);
  EXPECT_TRUE(compute::conv2d(x, weight, {}).equal(first));
  EXPECT_EQ(ConvChoices::global().to_json(), choices);
}

TEST_F(Layers, ConvolutionIn64BitsIsLibTorchs) {
  Tensor x = torch::randn({2, 3, 6, 6}), weight = torch::randn({4, 3, 3, 3}), bias = torch::randn({4});
  expect_gradients(
      [](const auto& v) {
        return conv2d(v[0], v[1], v[2], {{1, 1}, {1, 1}});
      },
      {x, weight, bias});
  EXPECT_TRUE(ConvChoices::global().to_json()["choices"].empty());
}

TEST_F(Layers, LinearLayersEqualLibTorchsForRowsAndSequences) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{5, 33}, {2, 3, 33}}) {
    std::vector<Tensor> inputs = {torch::randn(shape), torch::randn({17, 33}), torch::randn({17})};
    std::vector<Tensor> transposed = {inputs[0], inputs[1].t().contiguous(), inputs[2]};
    auto plain = [](const auto& v) { return at::linear(v[0], v[1], v[2]); };
    auto other = [](const auto& v) { return at::linear(v[0], v[1].t(), v[2]); };
    expect_same([](const auto& v) { return linear(v[0], v[1], v[2]); }, plain, inputs);
    expect_same([](const auto& v) { return compute::linear(v[0], v[1], {}); },
                [](const auto& v) { return at::linear(v[0], v[1]); }, {inputs[0], inputs[1]});
    expect_same([](const auto& v) { return linear_relu(v[0], v[1], v[2]); },
                [&](const auto& v) { return at::relu(plain(v)); }, inputs);
    expect_same([](const auto& v) { return linear_gelu(v[0], v[1], v[2]); },
                [&](const auto& v) { return at::gelu(plain(v), "tanh"); }, inputs);
    expect_same([](const auto& v) { return linear_gelu(v[0], v[1], {}); },
                [&](const auto& v) { return at::gelu(at::linear(v[0], v[1]), "tanh"); },
                {inputs[0], inputs[1]});
    expect_same([](const auto& v) { return linear_transposed(v[0], v[1], v[2]); }, other, transposed);
    expect_same([](const auto& v) { return linear_transposed_gelu(v[0], v[1], v[2]); },
                [&](const auto& v) { return at::gelu(other(v), "tanh"); }, transposed);
    expect_gradients([](const auto& v) { return linear_gelu(v[0], v[1], v[2]); }, inputs);
  }
}

TEST_F(Layers, LinearTakesInputsThatAreNotContiguous) {
  std::vector<Tensor> inputs = {torch::randn({33, 5}), torch::randn({17, 33}), torch::randn({17})};
  expect_same([](const auto& v) { return linear_relu(v[0].t(), v[1], v[2]); },
              [](const auto& v) { return at::relu(at::linear(v[0].t(), v[1], v[2])); }, inputs);
}

TEST_F(Layers, GeluEqualsLibTorchs) {
  auto ours = [](const auto& v) { return gelu_tanh(v[0]); };
  expect_same(ours, [](const auto& v) { return at::gelu(v[0], "tanh"); }, {3 * torch::randn({7, 19})});
  expect_gradients(ours, {torch::randn({4, 5})});
}

TEST_F(Layers, MaxPoolingEqualsLibTorchsWithAndWithoutRelu) {
  struct Window {
    int64_t kernel, stride, padding;
    bool ceil_mode;
  };
  for (Window w :
       {Window{2, 2, 0, false}, {3, 2, 1, false}, {3, 2, 0, true}, {3, 1, 1, false}, {2, 2, 0, true}}) {
    for (bool pixels : {false, true}) {
      SCOPED_TRACE(fmt::format("kernel {} stride {} padding {} ceil {} pixels {}", w.kernel, w.stride,
                               w.padding, w.ceil_mode, pixels));
      Tensor x = torch::randn({2, 5, 9, 12});
      auto in = [&](const Tensor& t) { return pixels ? t.contiguous(at::MemoryFormat::ChannelsLast) : t; };
      auto theirs = [&](const Tensor& t) {
        return at::max_pool2d(t, {w.kernel, w.kernel}, {w.stride, w.stride}, {w.padding, w.padding}, {1, 1},
                              w.ceil_mode);
      };
      expect_same(
          [&](const auto& v) { return max_pool2d(in(v[0]), w.kernel, w.stride, w.padding, w.ceil_mode); },
          [&](const auto& v) { return theirs(v[0]); }, {x});
      expect_same(
          [&](const auto& v) {
            return relu_max_pool2d(in(v[0]), w.kernel, w.stride, w.padding, w.ceil_mode);
          },
          [&](const auto& v) { return theirs(at::relu(v[0])); }, {x});
    }
  }
}

TEST_F(Layers, AWindowLargerThanTheInputIsAnError) {
  Tensor x = torch::randn({1, 2, 1, 1});
  EXPECT_THROW(max_pool2d(x, 2, 2), c10::Error);
}

TEST_F(Layers, CrossEntropyEqualsLibTorchsAndLeavesIgnoredTargetsOut) {
  Tensor target = torch::tensor({3, 0, -100, 6}, at::kLong);
  auto ours = [](const auto& v) { return cross_entropy(v[0], v[1]); };
  auto theirs = [](const auto& v) {
    return at::cross_entropy_loss(v[0].reshape({-1, 7}), v[1].reshape({-1}));
  };
  expect_same(ours, theirs, {4 * torch::randn({4, 7}), target});
  expect_same(ours, theirs, {4 * torch::randn({2, 2, 7}), target.view({2, 2})});
  expect_gradients(ours, {torch::randn({4, 7}), target});
  EXPECT_THROW(cross_entropy(torch::randn({1, 7}), torch::tensor({7}, at::kLong)), c10::Error);
  EXPECT_THROW(cross_entropy(torch::randn({1, 7}), torch::tensor({-1}, at::kLong)), c10::Error);
}

TEST_F(Layers, BatchNormWithAdditionAndReluEqualsLibTorchsAndKeepsItsStatistics) {
  for (int64_t channels : {3, 16, 40}) {
    torch::nn::BatchNorm2d ours(channels), theirs(channels);
    Tensor weight = torch::randn({channels}), bias = torch::randn({channels});
    ours->weight = weight;
    theirs->to(at::kDouble);
    auto with = [&](auto& norm, const std::vector<Tensor>& v) -> torch::nn::BatchNorm2dImpl& {
      norm->weight = v[1];
      norm->bias = v[2];
      return *norm;
    };
    auto pixels = [](const Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); };
    auto reference = [&](const auto& v) {
      auto& norm = with(theirs, v);
      return at::batch_norm(v[0], v[1], v[2], norm.running_mean, norm.running_var, true, 0.1, 1e-5, false);
    };
    std::vector<Tensor> inputs = {torch::randn({3, channels, 5, 4}) * 2 + 1, weight, bias};
    expect_same([&](const auto& v) { return batch_norm(with(ours, v), pixels(v[0])); }, reference, inputs);
    expect_same([&](const auto& v) { return batch_norm_relu(with(ours, v), pixels(v[0])); },
                [&](const auto& v) { return at::relu(reference(v)); }, inputs);
    inputs.push_back(torch::randn_like(inputs[0]));
    expect_same([&](const auto& v) { return batch_norm_add_relu(with(ours, v), pixels(v[0]), pixels(v[3])); },
                [&](const auto& v) { return at::relu(reference(v) + v[3]); }, inputs);
    EXPECT_TRUE(at::allclose(ours->running_mean.to(at::kDouble), theirs->running_mean, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(ours->running_var.to(at::kDouble), theirs->running_var, 1e-5, 1e-6));
    EXPECT_EQ(ours->num_batches_tracked.item<int64_t>(), 3);
  }
}

TEST_F(Layers, AutocastGoesToLibTorchsOperators) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  Tensor y = linear_relu(torch::randn({4, 8}), torch::randn({3, 8}), torch::randn({3}));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
}

TEST_F(Layers, SecondDerivativesAreRefusedNotWrong) {
  Tensor x = torch::randn({3, 4}).requires_grad_();
  Tensor y = gelu_tanh(x).sum();
  EXPECT_ANY_THROW(torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true));
}

}  // namespace
}  // namespace yoke::compute
