#include "yoke/engine/generate.h"

#include <gtest/gtest.h>

namespace yoke::engine {
namespace {

constexpr int64_t kPositions = 8;

models::Model small() {
  torch::manual_seed(4);
  models::Model model = models::build(
      {.name = "gpt2", .layers = 2, .heads = 2, .width = 16, .vocabulary = 23, .positions = kPositions});
  for (torch::Tensor& weight : model.module->parameters())
    weight.data().mul_(8);  // so that it does not repeat itself
  model.module->eval();
  return model;
}

std::vector<int64_t> generated(const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  std::vector<int64_t> tokens;
  generate(small(), prompt, options, [&](int64_t token) {
    tokens.push_back(token);
    return true;
  });
  return tokens;
}

// The rule of the header, without keys and values.
std::vector<int64_t> greedy_uncached(std::vector<int64_t> tokens, int64_t count) {
  torch::NoGradGuard no_grad;
  const models::Model model = small();
  std::vector<int64_t> added;
  size_t begin = tokens.size() > kPositions ? tokens.size() - kPositions : 0;
  for (int64_t i = 0; i < count; ++i) {
    if (tokens.size() - begin > kPositions) begin = tokens.size() - kPositions / 2;
    std::vector<int64_t> seen(tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end());
    torch::Tensor logits = model.forward({torch::tensor(seen, torch::kLong).unsqueeze(0)})[0][0][-1];
    tokens.push_back(logits.argmax().item<int64_t>());
    added.push_back(tokens.back());
  }
  return added;
}

TEST(Generate, GreedyEqualsTheUncachedModelBeyondItsPositions) {
  for (size_t prompt : {1u, 5u, 8u, 13u}) {
    std::vector<int64_t> tokens(prompt);
    for (size_t i = 0; i < prompt; ++i) tokens[i] = static_cast<int64_t>(5 * i % 23);
    EXPECT_EQ(generated(tokens, {.sampling = {.temperature = 0}, .tokens = 30}), greedy_uncached(tokens, 30));
  }
}

TEST(Generate, DrawsTheSameForTheSameSeed) {
  const auto one = generated({3}, {.sampling = {.temperature = 1}, .seed = 1, .tokens = 40});
  EXPECT_EQ(one, generated({3}, {.sampling = {.temperature = 1}, .seed = 1, .tokens = 40}));
  EXPECT_NE(one, generated({3}, {.sampling = {.temperature = 1}, .seed = 2, .tokens = 40}));
}

TEST(Generate, StopsAtTheEndAndWhenItIsTold) {
  const GenerateOptions greedy{.sampling = {.temperature = 0}, .tokens = 30};
  const auto all = generated({3}, greedy);
  GenerateOptions ends = greedy;
  ends.end = all[4];
  const auto ended = generated({3}, ends);
  EXPECT_EQ(ended.back(), all[4]);
  EXPECT_LE(ended.size(), 5u);
  int64_t taken = 0;
  generate(small(), {3}, greedy, [&](int64_t) { return ++taken < 3; });
  EXPECT_EQ(taken, 3);
}

TEST(Generate, ChoosesAmongKnownTokensOnly) {
  for (int64_t token : generated({3}, {.sampling = {.temperature = 2}, .tokens = 60, .vocabulary = 4}))
    EXPECT_LT(token, 4);
}

}  // namespace
}  // namespace yoke::engine
