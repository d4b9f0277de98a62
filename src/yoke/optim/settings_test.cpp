#include "yoke/optim/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "yoke/base/error.h"

namespace yoke::optim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<NamedTensor> network() {
  torch::manual_seed(3);
  auto random = [](std::vector<int64_t> shape) {
    return torch::randn(shape, torch::kDouble).requires_grad_();
  };
  return {{"conv1.weight", random({4, 3, 3, 3})},
          {"conv1.bias", random({4})},
          {"bn1.weight", random({4})},
          {"fc.weight", random({5, 4})},
          {"fc.bias", random({5})}};
}

OptimizerOptions options_with(const std::string& groups) {
  OptimizerOptions options;
  options.weight_decay = 0.1;
  options.groups = groups;
  return options;
}

TEST(Groups, TheFirstPatternThatMatchesCounts) {
  OptimizerOptions options = with_settings(
      options_with("[{match = \"fc.b*\", lr = 3}, {match = \"fc.*\", lr = 2, weight_decay = 0.5}, "
                   "{match = \"conv?.*\", freeze = true}]"),
      network());
  EXPECT_EQ(settings_of(options, "fc.bias").lr, 3);
  EXPECT_EQ(settings_of(options, "fc.bias").weight_decay, 0.1);
  EXPECT_EQ(settings_of(options, "fc.weight").lr, 2);
  EXPECT_EQ(settings_of(options, "fc.weight").weight_decay, 0.5);
  EXPECT_TRUE(settings_of(options, "conv1.weight").freeze);
  EXPECT_EQ(settings_of(options, "bn1.weight").lr, 1);
  EXPECT_TRUE(has_groups(options));
  EXPECT_FALSE(has_groups(with_settings(options_with(""), network())));
}

TEST(Groups, APieceOfAParameterHasItsSettings) {
  OptimizerOptions options = with_settings(options_with("[{match = \"fc.weight\", lr = 2}]"), network());
  EXPECT_EQ(settings_of(options, "fc.weight@3:12").lr, 2);
  EXPECT_TRUE(settings_of(options, "fc.weight@3:12").matrix);
  EXPECT_FALSE(settings_of(options, "fc.bias@0:5").matrix);
}

TEST(Groups, BiasesAndNormsMayDoWithoutDecay) {
  OptimizerOptions options = options_with("[{match = \"fc.bias\", weight_decay = 0.3}]");
  options.decay_biases = false;
  options = with_settings(options, network());
  EXPECT_EQ(settings_of(options, "conv1.weight").weight_decay, 0.1);
  for (const char* name : {"conv1.bias", "bn1.weight"})
    EXPECT_EQ(settings_of(options, name).weight_decay, 0) << name;
  EXPECT_EQ(settings_of(options, "fc.bias").weight_decay, 0.3) << "a group says so";
}

TEST(Groups, APatternThatMatchesNothingIsRefusedWithNearNames) {
  auto message = [](const std::string& pattern) {
    try {
      with_settings(options_with("[{match = \"" + pattern + "\"}]"), network());
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("conv1.wieght"),
              AllOf(HasSubstr("conv1.wieght"), HasSubstr("Did you mean \"conv1.weight\"?")));
  EXPECT_THAT(message("*.bais"), HasSubstr("Did you mean \"*.bias\"?"));
  EXPECT_THAT(message("nothing_like_it"), HasSubstr("Its parameters: conv1.weight, conv1.bias"));
}

TEST(Groups, WhatMakesNoSenseIsRefused) {
  EXPECT_THAT([] { with_settings(options_with("[{match = \"*\", freeze = true}]"), network()); },
              ThrowsMessage<ConfigError>(HasSubstr("nothing is trained")));
  EXPECT_THAT(check_groups("[{lr = 2}]"), HasSubstr("a pattern of names"));
  EXPECT_THAT(check_groups("[{match = \"a\", weight_decay = -0.5}]"), HasSubstr("at least 0, or -1"));
  OptimizerOptions lbfgs = options_with("[{match = \"fc.*\", lr = 2}]");
  lbfgs.optimizer = "lbfgs";
  lbfgs.weight_decay = 0;
  EXPECT_THAT([&] { make(lbfgs, network()); }, ThrowsMessage<ConfigError>(HasSubstr("only freeze works")));
  for (const char* name : {"ftrl", "proximal"}) {
    OptimizerOptions sparse = options_with("[{match = \"fc.*\", weight_decay = 2}]");
    sparse.optimizer = name;
    sparse.weight_decay = 0;
    EXPECT_THAT([&] { make(sparse, network()); }, ThrowsMessage<ConfigError>(HasSubstr("set train.l2")));
  }
}

void set_gradients(const std::vector<NamedTensor>& parameters, int step) {
  torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters)
    parameter.mutable_grad() = torch::sin(parameter * (step + 1));
}

// One optimizer with groups moves each parameter as one for that parameter alone would.
TEST(Groups, EveryOptimizerFollowsThem) {
  for (const char* name : {"sgd", "adamw", "adagrad", "ftrl", "proximal", "lars", "lamb", "lion"}) {
    const bool decays = std::string(name) != "ftrl" && std::string(name) != "proximal";
    OptimizerOptions options;
    options.optimizer = name;
    options.weight_decay = decays ? 0.1 : 0;
    options.groups = decays ? "[{match = \"*.bias\", lr = 2, weight_decay = 0}, {match = \"fc.*\", lr = 0.5}]"
                            : "[{match = \"*.bias\", lr = 2}, {match = \"fc.*\", lr = 0.5}]";
    auto together = network(), alone = network();
    auto grouped = make(options, together);
    std::vector<std::unique_ptr<Optimizer>> each;
    std::vector<double> factors;
    for (const NamedTensor& one : alone) {
      const bool bias = one.first.ends_with(".bias");
      OptimizerOptions own = options;
      own.groups = "";
      if (bias) own.weight_decay = 0;
      factors.push_back(bias ? 2 : one.first.starts_with("fc.") ? 0.5 : 1);
      each.push_back(make(own, {one}));
    }
    for (int step = 0; step < 4; ++step) {
      set_gradients(together, step);
      set_gradients(alone, step);
      grouped->step(0.1 / (step + 1));
      for (size_t i = 0; i < each.size(); ++i) each[i]->step(0.1 / (step + 1) * factors[i]);
    }
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(together[i].second.allclose(alone[i].second, 1e-12, 1e-14))
          << name << " " << alone[i].first;
  }
}

TEST(Groups, FrozenParametersAreNotMovedAndHaveNoState) {
  OptimizerOptions options = options_with("[{match = \"conv1.*\", freeze = true}]");
  options.optimizer = "adamw";
  auto parameters = network();
  const torch::Tensor before = parameters[0].second.detach().clone();
  auto optimizer = make(options, parameters);
  set_gradients(parameters, 0);
  optimizer->step(0.1);
  EXPECT_TRUE(parameters[0].second.equal(before));
  for (const auto& [name, tensor] : optimizer->state())
    EXPECT_EQ(name.find("conv1"), std::string::npos) << name;
}

}  // namespace
}  // namespace yoke::optim
