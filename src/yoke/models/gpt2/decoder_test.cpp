#include "yoke/models/gpt2/decoder.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/models/gpt2/gpt2.h"

namespace yoke::models {
namespace {

Model small(torch::ScalarType type) {
  torch::manual_seed(4);
  Model model =
      build({.name = "gpt2", .layers = 3, .heads = 2, .width = 16, .vocabulary = 29, .positions = 12});
  model.module->to(type);
  model.module->eval();
  return model;
}

std::vector<int64_t> some_tokens(int64_t count) {
  torch::Tensor ids = torch::randint(29, {count}, torch::kLong);
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + count};
}

torch::Tensor uncached(const Model& model, std::span<const int64_t> tokens) {
  torch::Tensor ids = torch::tensor(at::ArrayRef<int64_t>(tokens.data(), tokens.size()), torch::kLong);
  return model.forward({ids.unsqueeze(0)})[0][0][-1];
}

// Prompts of every length, each continued to the end.
void expect_equal_to_forward(torch::ScalarType type, double tolerance) {
  torch::NoGradGuard no_grad;
  const Model model = small(type);
  const std::vector<int64_t> tokens = some_tokens(12);
  Gpt2Decoder decoder(model);
  for (size_t prompt = 1; prompt <= tokens.size(); ++prompt) {
    decoder.forget();
    const std::span<const int64_t> all(tokens);
    torch::Tensor logits = decoder.add(all.first(prompt));
    for (size_t seen = prompt;; ++seen) {
      torch::Tensor expected = uncached(model, all.first(seen));
      ASSERT_EQ(logits.sizes(), expected.sizes());
      EXPECT_LE((logits - expected).abs().max().item<double>(), tolerance) << prompt << ", " << seen;
      if (seen == tokens.size()) break;
      logits = decoder.add(all.subspan(seen, 1));
    }
    EXPECT_EQ(decoder.count(), decoder.room());
  }
}

TEST(Gpt2Decoder, GivesTheLogitsOfTheUncachedForwardPass) {
  expect_equal_to_forward(torch::kDouble, 1e-12);
  expect_equal_to_forward(torch::kFloat, 1e-5);
}

TEST(Gpt2Decoder, RefusesMoreTokensThanItHasPositions) {
  torch::NoGradGuard no_grad;
  const Model model = small(torch::kFloat);
  Gpt2Decoder decoder(model);
  const std::vector<int64_t> tokens = some_tokens(13);
  EXPECT_THROW(decoder.add(tokens), std::exception);
  decoder.add(std::span(tokens).first(12));
  EXPECT_THROW(decoder.add(std::span(tokens).last(1)), std::exception);
}

TEST(Gpt2Decoder, RefusesOtherModels) {
  Model model = build({.name = "lenet"});
  model.module->eval();
  EXPECT_THROW(Gpt2Decoder{model}, ConfigError);
}

}  // namespace
}  // namespace yoke::models
