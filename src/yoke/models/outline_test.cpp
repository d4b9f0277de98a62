// The outline of a model is what its builder builds.
#include "yoke/models/outline/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/models/model.h"

namespace yoke::models {
namespace {

using testing::HasSubstr;

constexpr const char* kImageModels[] = {"lenet",    "vgg_small", "alexnet",   "alexnet_original", "vgg11",
                                        "vgg11_bn", "vgg16",     "vgg16_bn",  "resnet18",         "resnet34",
                                        "resnet50", "resnet101", "resnet152", "inception_v3"};

std::vector<ModelOptions> variants() {
  std::vector<ModelOptions> all;
  for (const std::string& name : model_names())
    if (name != "cycle_in_a_test") all.push_back({.name = name});  // graph_test.cpp: it cannot be built
  for (const char* name : kImageModels) all.push_back({.name = name, .classes = 7, .image_size = 97});
  all.push_back({.name = "mlp", .sizes = {5, 4, 3, 2}});
  all.push_back({.name = "gpt2", .size = "355m"});
  all.push_back({.name = "gpt2", .layers = 3, .heads = 2, .width = 6, .vocabulary = 11, .positions = 9});
  all.push_back({.name = "s2vt", .width = 8, .vocabulary = 13, .frames = 3, .features = 5, .words = 4});
  all.push_back({.name = "sparse_lr", .features = 17});
  return all;
}

TEST(Outline, IsWhatTheBuilderBuilds) {
  for (const ModelOptions& options : variants()) {
    Outline outline = outline_of(options);
    Model model = lay_out(options);
    EXPECT_EQ(outline.blocks, static_cast<int64_t>(model.blocks.size())) << options.name;
    EXPECT_EQ(outline.parameters, static_cast<double>(model.parameter_count())) << options.name;
  }
}

std::string refusal(const ModelOptions& options) {
  try {
    lay_out(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Outline, SizesThatNoMachineHoldsAreRefusedByKey) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_THAT(refusal({.name = "sparse_lr", .features = kHuge}),
              HasSubstr("model.features = 4611686018427387904: sparse_lr would have 4.61e+18 parameters"));
  EXPECT_THAT(refusal({.name = "mlp", .sizes = {784, kHuge, 10}}), HasSubstr("model.sizes: a layer of"));
  EXPECT_THAT(refusal({.name = "mlp", .sizes = {kHuge, kHuge}}), HasSubstr("would have"));
  for (const char* name : kImageModels) {
    EXPECT_THAT(refusal({.name = name, .classes = kHuge}), HasSubstr("model.classes = ")) << name;
    EXPECT_THAT(refusal({.name = name, .image_size = kHuge}), HasSubstr("model.image_size = ")) << name;
  }
  EXPECT_THAT(refusal({.name = "gpt2", .width = kHuge}), HasSubstr("model.width = "));
  EXPECT_THAT(refusal({.name = "gpt2", .vocabulary = kHuge}), HasSubstr("model.vocabulary = "));
  EXPECT_THAT(refusal({.name = "gpt2", .positions = kHuge}), HasSubstr("model.positions = "));
  EXPECT_THAT(refusal({.name = "gpt2", .layers = kHuge}), HasSubstr("model.layers = "));
  EXPECT_THAT(refusal({.name = "gpt2", .layers = 1'000'000, .heads = 1, .width = 1}), HasSubstr("blocks"));
  EXPECT_THAT(refusal({.name = "s2vt", .width = kHuge}), HasSubstr("model.width = "));
  EXPECT_THAT(refusal({.name = "s2vt", .frames = kHuge}), HasSubstr("model.frames = "));
  EXPECT_THAT(refusal({.name = "s2vt", .words = kHuge}), HasSubstr("model.words = "));
}

TEST(Outline, StagesShareTheWeights) {
  ModelOptions options{.name = "gpt2"};  // 124M parameters, 498 MB
  EXPECT_THROW(check_size(options, 300e6, "this machine has"), ConfigError);
  EXPECT_NO_THROW(check_size(options, 300e6, "this machine has", /*stages=*/2));
}

}  // namespace
}  // namespace yoke::models
