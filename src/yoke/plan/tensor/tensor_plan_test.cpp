#include "yoke/plan/tensor/tensor_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/plan/tensor/layer_cuts.h"

namespace yoke::plan {
namespace {

using Kind = TensorLayer::Kind;
using ::testing::HasSubstr;

const std::vector<TensorLayer> kPair = {{"fc1", Kind::kLinear, 6, 10}, {"fc2", Kind::kLinear, 10, 3}};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(const std::string& text, const std::vector<TensorLayer>& layers, int ranks = 2) {
  return error_of([&] { cut_layers(parse_tensor_plan(text), layers, ranks); });
}

TEST(TensorPlan, ReadsWhatItWrites) {
  std::string text =
      "heads = 12\n\"features.0\" = \"channels_out:gathered\"\n\"h.*.attn.c_attn\" = \"columns:heads\"\n"
      "\"h.*.attn.c_proj\" = \"rows\"\n\"q\" = \"columns:heads=4\"\n\"wte\" = \"vocabulary\"\n";
  TensorPlan plan = parse_tensor_plan(text);
  EXPECT_EQ(plan.rules.size(), 5U);
  EXPECT_EQ(plan.heads, 12);
  EXPECT_EQ(to_string(plan), text);
  EXPECT_EQ(parse_tensor_plan(to_string(plan)), plan);
}

TEST(TensorPlan, MatchesBetweenDots) {
  EXPECT_TRUE(matches("h.*.attn.c_attn", "h.11.attn.c_attn"));
  EXPECT_TRUE(matches("layer*.*.conv2", "layer4.0.conv2"));
  EXPECT_FALSE(matches("h.*", "h.1.attn"));
  EXPECT_FALSE(matches("h.*.attn", "h.1.attn2"));
  EXPECT_TRUE(matches("a*b*", "axxbyy"));
}

TEST(TensorPlan, NamesFileAndLineOfWhatItCannotRead) {
  auto error = [](const std::string& text) { return error_of([&] { parse_tensor_plan(text, "my.toml"); }); };
  EXPECT_THAT(error("\"a\" = \"columns\"\n\"b\" = \"sideways\""), HasSubstr("my.toml:2: `b` = \"sideways\""));
  EXPECT_THAT(error("\"a\" = 3"), HasSubstr("my.toml:1: `a`"));
  EXPECT_THAT(error("a = "), HasSubstr("my.toml:1"));
  EXPECT_THAT(error("fc.1 = \"rows\""), HasSubstr("quotes"));
  EXPECT_THAT(error("\"a\" = \"columns:heads=0\""), HasSubstr("at least 1"));
  EXPECT_THAT(error("\"a\" = \"rows:heads\""), HasSubstr("layers are cut by"));
}

TEST(LayerCuts, CutUnevenly) {
  auto cuts = cut_layers(parse_tensor_plan("fc1 = \"columns\"\nfc2 = \"rows\""), kPair, 3);
  ASSERT_EQ(cuts.size(), 2U);
  EXPECT_EQ(ranges_of(cuts[0], 10, 3, 0), (std::vector<CutRange>{{0, 3}}));
  EXPECT_EQ(ranges_of(cuts[0], 10, 3, 2), (std::vector<CutRange>{{6, 10}}));
  EXPECT_EQ(ranges_of(cuts[1], 10, 3, 1), (std::vector<CutRange>{{3, 6}}));
}

TEST(LayerCuts, KeepHeadsOfQueriesKeysAndValuesTogether) {
  std::vector<TensorLayer> layers = {{"a", Kind::kLinear, 8, 24}, {"b", Kind::kLinear, 8, 8}};
  auto cuts = cut_layers(parse_tensor_plan("a = \"columns:heads=4\"\nb = \"rows\""), layers, 2);
  EXPECT_EQ(ranges_of(cuts[0], 24, 2, 1), (std::vector<CutRange>{{4, 8}, {12, 16}, {20, 24}}));
  EXPECT_EQ(ranges_of(cuts[1], 8, 2, 1), (std::vector<CutRange>{{4, 8}}));
}

TEST(LayerCuts, CarryChannelsThroughBatchNormAndFlattening) {
  std::vector<TensorLayer> layers = {
      {"conv", Kind::kConv, 3, 4}, {"bn", Kind::kBatchNorm, 4, 4}, {"fc", Kind::kLinear, 36, 5}};
  auto cuts = cut_layers(parse_tensor_plan("conv = \"channels_out\"\nfc = \"rows\""), layers, 2);
  ASSERT_EQ(cuts.size(), 3U);
  EXPECT_EQ(cuts[1].layer, "bn");
  EXPECT_EQ(ranges_of(cuts[2], 36, 2, 1), (std::vector<CutRange>{{18, 36}}));
}

TEST(LayerCuts, SayWhatIsWrongWithAPlan) {
  EXPECT_THAT(error_of("fc3 = \"columns\"", kPair), HasSubstr("\"fc3\" names no layer"));
  EXPECT_THAT(error_of("fc1 = \"columns\"", kPair),
              HasSubstr("'fc1' is cut by columns and no layer after it"));
  EXPECT_THAT(error_of("fc2 = \"rows\"", kPair), HasSubstr("no layer before it leaves any"));
  EXPECT_THAT(error_of("fc1 = \"columns\"\nfc2 = \"columns\"", kPair), HasSubstr("so is 'fc2' behind it"));
  EXPECT_THAT(error_of("fc1 = \"channels_out\"", kPair), HasSubstr("'fc1' is a linear layer"));
  EXPECT_THAT(error_of("\"f*\" = \"columns\"\n\"fc*\" = \"rows\"", kPair),
              HasSubstr("name the layer itself"));
  EXPECT_THAT(error_of("fc1 = \"columns\"\nfc2 = \"rows\"", kPair, 11),
              HasSubstr("10 columns. Hint: 1 to 10 fit"));
  EXPECT_THAT(error_of("fc1 = \"columns:heads\"\nfc2 = \"rows\"", kPair), HasSubstr("how many heads"));
  EXPECT_THAT(error_of("fc1 = \"columns:heads=2\"\nfc2 = \"rows\"", kPair, 4),
              HasSubstr("'fc1' has 2 heads. Hint: 1 to 2 fit"));
  std::vector<TensorLayer> normed = {kPair[0], {"ln", Kind::kLayerNorm, 10, 10}, kPair[1]};
  EXPECT_THAT(error_of("fc1 = \"columns\"\nfc2 = \"rows\"", normed),
              HasSubstr("LayerNorm 'ln' needs all outputs"));
}

TEST(TensorPresets, PairUpChains) {
  std::vector<TensorLayer> layers = {{"features.0", Kind::kConv, 3, 8},
                                     {"features.3", Kind::kConv, 8, 6},
                                     {"features.6", Kind::kConv, 6, 6},
                                     {"classifier.1", Kind::kLinear, 24, 5},
                                     {"classifier.4", Kind::kLinear, 5, 2}};
  EXPECT_EQ(to_string(tensor_preset("alexnet", layers)),
            "\"features.0\" = \"channels_out\"\n\"features.3\" = \"channels_in\"\n\"features.6\" = "
            "\"channels_out\"\n"
            "\"classifier.1\" = \"rows\"\n");
  EXPECT_THROW(tensor_preset("s2vt", layers), ConfigError);
}

}  // namespace
}  // namespace yoke::plan
