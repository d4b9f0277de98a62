#include "yoke/models/gpt2/gpt2.h"

#include <gtest/gtest.h>

#include "yoke/models/test_batch.h"
#include "yoke/models/test_finite_difference.h"

namespace yoke::models {
namespace {

const ModelOptions kTiny{
    .name = "gpt2", .layers = 2, .heads = 2, .width = 8, .vocabulary = 11, .positions = 6};

TEST(Gpt2, HasTheGradientsOfItsLoss) {
  torch::manual_seed(2);
  Model model = build(kTiny);
  model.module->to(torch::kDouble);
  expect_gradients_match_differences(model, make_test_batch(model.sample, 2));
}

TEST(Gpt2, DoesNotSeeTheFuture) {
  torch::manual_seed(2);
  Model model = build(kTiny);
  torch::Tensor ids = torch::randint(11, {1, 6});
  torch::Tensor changed = ids.clone();
  changed[0][4] = (ids[0][4] + 1) % 11;
  torch::Tensor before = model.forward({ids})[0];
  torch::Tensor after = model.forward({changed})[0];
  EXPECT_TRUE(before.narrow(1, 0, 4).equal(after.narrow(1, 0, 4)));
  EXPECT_FALSE(before.narrow(1, 4, 2).equal(after.narrow(1, 4, 2)));
}

TEST(Gpt2, TakesShorterSequencesAndRefusesLongerOnes) {
  Model model = build(kTiny);
  EXPECT_EQ(model.forward({torch::zeros({1, 3}, torch::kLong)})[0].sizes(), (std::vector<int64_t>{1, 3, 11}));
  EXPECT_THROW(model.forward({torch::zeros({1, 7}, torch::kLong)}), std::exception);
}

TEST(Gpt2, StartsAsItsPaperSays) {
  torch::manual_seed(2);
  Model model =
      build({.name = "gpt2", .layers = 2, .heads = 2, .width = 128, .vocabulary = 500, .positions = 16});
  auto parameters = model.module->named_parameters();
  EXPECT_NEAR(parameters["wte.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(parameters["h.1.mlp.c_fc.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(parameters["h.1.mlp.c_proj.weight"].std().item<double>(), 0.01, 0.0005);
  EXPECT_EQ(parameters["h.0.attn.c_attn.bias"].abs().max().item<double>(), 0);
  EXPECT_EQ(parameters["ln_f.weight"].min().item<double>(), 1);
}

TEST(Gpt2, DropsOnlyInTraining) {
  ModelOptions options = kTiny;
  options.dropout = 0.5;
  Model model = build(options);
  torch::Tensor ids = torch::zeros({1, 6}, torch::kLong);
  EXPECT_FALSE(model.forward({ids})[0].equal(model.forward({ids})[0]));
  model.module->eval();
  EXPECT_TRUE(model.forward({ids})[0].equal(model.forward({ids})[0]));
}

}  // namespace
}  // namespace yoke::models
