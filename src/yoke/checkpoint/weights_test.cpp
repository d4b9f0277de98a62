#include "yoke/checkpoint/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "yoke/base/error.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/test_folder.h"

namespace yoke::checkpoint {
namespace {

using format::overwrite_file;
using format::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::vector<NamedTensor>& source, const std::vector<NamedTensor>& own) {
  try {
    copy_weights(source, own, "w.safetensors");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Weights, AreFoundWithAndWithoutThePrefix) {
  auto own = torch::zeros({3});
  EXPECT_EQ(copy_weights({{"transformer.ln_f.bias", torch::ones({3})}}, {{"ln_f.bias", own}}, "w").copied, 1);
  EXPECT_EQ(own.sum().item<float>(), 3);
  copy_weights({{"ln_f.bias", torch::full({3}, 2.0f)}}, {{"transformer.ln_f.bias", own}}, "w");
  EXPECT_EQ(own.sum().item<float>(), 6);
  EXPECT_THAT(refusal({{"ln_f.bias", own}, {"transformer.ln_f.bias", own}}, {{"ln_f.bias", own}}),
              HasSubstr("twice"));
}

TEST(Weights, ComeWithThingsThatAreNoWeights) {
  auto wte = torch::randn({5, 2});
  auto own = torch::zeros({5, 2});
  auto result = copy_weights({{"transformer.wte.weight", wte},
                              {"lm_head.weight", wte.clone()},
                              {"transformer.h.0.attn.bias", torch::ones({1})},
                              {"transformer.h.0.attn.masked_bias", torch::ones({1})}},
                             {{"wte.weight", own}}, "w");
  EXPECT_EQ(result.copied, 1);
  EXPECT_EQ(result.ignored.size(), 3u);
  EXPECT_TRUE(torch::equal(own, wte));
}

TEST(Weights, WithAnOutputLayerOfItsOwnAreNotTakenForTied) {
  auto wte = torch::randn({5, 2});
  EXPECT_THAT(
      refusal({{"wte.weight", wte}, {"lm_head.weight", wte + 1}}, {{"wte.weight", torch::zeros({5, 2})}}),
      HasSubstr("contains \"lm_head.weight\""));
}

TEST(Weights, MayLackBatchCountersAndATiedOutputLayer) {
  auto own = torch::zeros({5, 2});
  auto counter = torch::full({}, 4, torch::kLong);
  auto result =
      copy_weights({{"wte.weight", torch::ones({5, 2})}},
                   {{"wte.weight", own}, {"lm_head.weight", own}, {"bn1.num_batches_tracked", counter}}, "w");
  EXPECT_THAT(result.kept, ElementsAre("lm_head.weight", "bn1.num_batches_tracked"));
  EXPECT_EQ(counter.item<int64_t>(), 4);
}

TEST(Weights, ChangeBetweenFloatingPointTypesOnly) {
  auto own = torch::zeros({2}, torch::kBFloat16);
  copy_weights({{"a", torch::ones({2}, torch::kHalf)}}, {{"a", own}}, "w");
  EXPECT_EQ(own.sum().item<float>(), 2);
  EXPECT_THAT(refusal({{"a", torch::ones({2}, torch::kLong)}}, {{"a", own}}),
              HasSubstr("Long [2] in the file and BFloat16 [2] in this model"));
}

TEST(Weights, OfAnotherModelAreRefusedWithTheKeyToLookAt) {
  auto weight = torch::zeros({10, 4}), bias = torch::zeros({10});
  std::string text = refusal({{"fc.weight", torch::ones({1000, 4})}, {"fc.bias", torch::ones({1000})}},
                             {{"fc.weight", weight}, {"fc.bias", bias}});
  EXPECT_THAT(text, HasSubstr("w.safetensors: the weights belong to another model"));
  EXPECT_THAT(
      text,
      HasSubstr("\"fc.weight\" is Float [1000, 4] in the file and Float [10, 4] in this model (1 more"));
  EXPECT_THAT(text, HasSubstr("Check model.classes"));
  EXPECT_EQ(weight.sum().item<float>(), 0);
  EXPECT_THAT(refusal({{"fc.weight", weight}}, {{"fc.weight", weight}, {"fc.bias", bias}}),
              HasSubstr("\"fc.bias\" Float [10] is not in it"));
  EXPECT_THAT(refusal({{"a", bias}, {"b", bias}}, {{"a", bias}}), HasSubstr("contains \"b\""));
}

TEST(Weights, AreReadFromAShardedModel) {
  TestFolder folder;
  save_tensors(folder / "m-1.safetensors", {{"a", torch::ones({2})}});
  save_tensors(folder / "m-2.safetensors", {{"b", torch::ones({3})}});
  overwrite_file(
      folder / "model.safetensors.index.json",
      R"({"metadata":{"total_size":20},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  EXPECT_EQ(load_weights(folder.path()).size(), 2u);
  EXPECT_EQ(load_weights(folder / "model.safetensors.index.json").size(), 2u);
  overwrite_file(folder / "x.json", R"({"weight_map":{"a":"m-1.safetensors","c":"m-2.safetensors"}})");
  EXPECT_THROW(load_weights(folder / "x.json"), ConfigError);
  overwrite_file(folder / "x.json",
                 R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"}})");
  EXPECT_THROW(load_weights(folder / "x.json"), ConfigError);
}

TEST(Weights, AreReadFromFilesFoldersAndRuns) {
  TestFolder folder;
  EXPECT_THROW(load_weights(folder.path()), ConfigError);
  EXPECT_THROW(load_weights(folder / "nowhere.safetensors"), ConfigError);
  save_tensors(folder / "model.safetensors", {{"a", torch::ones({2})}});
  EXPECT_EQ(load_weights(folder.path()).size(), 1u);
  EXPECT_EQ(load_weights(folder / "model.safetensors").size(), 1u);
  Writer(folder / "run/checkpoints", {}).save(5, {{{"b", torch::ones({1})}}, {}, nlohmann::json::object()});
  EXPECT_EQ(load_weights(folder / "run")[0].first, "b");
  EXPECT_EQ(load_weights(folder / "run/checkpoints/step-5")[0].first, "b");
  format::flip_bit(folder / "run/checkpoints/step-5/model.safetensors", 300);
  EXPECT_THROW(load_weights(folder / "run"), CheckpointError);
}

}  // namespace
}  // namespace yoke::checkpoint
