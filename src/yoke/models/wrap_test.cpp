#include "yoke/models/wrap.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "yoke/base/error.h"

namespace yoke::models {
namespace {

const SampleSpec kFour{.kind = SampleKind::kVector, .shape = {4}, .classes = 3};

Model make_nothing(const ModelOptions&) {
  return {};
}

TEST(Wrap, ASequentialIsOneBlockForEachLayer) {
  torch::manual_seed(1);
  torch::nn::Sequential layers(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
  Model model = wrap(layers, {}, kFour);
  ASSERT_EQ(model.blocks.size(), 3u);
  EXPECT_EQ(model.parameter_count(), 4 * 8 + 8 + 8 * 3 + 3);
  torch::Tensor x = torch::randn({5, 4}), target = torch::tensor({0, 1, 2, 0, 1});
  Tensors outputs = model.forward({x});
  EXPECT_TRUE(outputs.at(0).equal(layers->forward(x)));
  EXPECT_NEAR(model.loss(outputs, target).item<double>(),
              torch::cross_entropy_loss(outputs[0], target).item<double>(), 1e-6);
  EXPECT_EQ(model.correct(outputs, target).item<int64_t>(),
            (outputs[0].argmax(1) == target).sum().item<int64_t>());
}

TEST(Wrap, AnyModuleWithItsOwnLoss) {
  auto root = std::make_shared<torch::nn::Module>("mine");
  torch::nn::Linear first(4, 4), last(4, 1);
  root->register_module("first", first);
  root->register_module("last", last);
  Model model = wrap(
      root,
      {block("first", first),
       block("rest", [last](const torch::Tensor& x) mutable { return last(x.tanh()); }, {last.ptr()})},
      [](const Tensors& outputs, const torch::Tensor& target) {
        return torch::mse_loss(outputs[0].squeeze(1), target);
      },
      kFour);
  torch::Tensor x = torch::randn({2, 4});
  EXPECT_TRUE(model.forward({x})[0].equal(last(first(x).tanh())));
  EXPECT_EQ(model.correct, nullptr);
  EXPECT_NEAR(model.loss(model.forward({x}), torch::zeros({2})).item<double>(),
              model.forward({x})[0].square().mean().item<double>(), 1e-6);
}

TEST(RegisterModel, BuildsByNameAndRefusesWhatItDoesNotRead) {
  register_model("registered_in_a_test",
                 [](const ModelOptions& options) {
                   return wrap(
                       torch::nn::Sequential(torch::nn::Linear(4, options.width == 0 ? 2 : options.width)),
                       {}, kFour);
                 },
                 {"width"});
  Model model = build({.name = "registered_in_a_test", .width = 7});
  EXPECT_EQ(model.name, "registered_in_a_test");
  EXPECT_EQ(model.parameter_count(), 4 * 7 + 7);
  EXPECT_THROW(build({.name = "registered_in_a_test", .heads = 2}), ConfigError);
  EXPECT_THROW(register_model("registered_in_a_test", make_nothing), ConfigError);
  EXPECT_THROW(register_model("gpt2", make_nothing), ConfigError);
  EXPECT_THROW(register_model("other", make_nothing, {"no_such_key"}), ConfigError);
  register_model("nothing", make_nothing);
  EXPECT_THROW(build({.name = "nothing"}), ConfigError);
}

}  // namespace
}  // namespace yoke::models
