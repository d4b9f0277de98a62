#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/models/model.h"

namespace yoke::models {
namespace {

using testing::HasSubstr;

std::string build_error(const ModelOptions& options) {
  try {
    lay_out(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> parameter_names(const Model& model) {
  std::vector<std::string> names;
  for (const auto& item : model.module->named_parameters()) names.push_back(item.key());
  return names;
}

std::vector<std::string> block_names(const Model& model) {
  std::vector<std::string> names;
  for (const Block& block : model.blocks) names.push_back(block.name);
  return names;
}

TEST(Build, GivesThePublishedParameterCounts) {
  auto count = [](const std::string& name) { return lay_out({.name = name}).parameter_count(); };
  EXPECT_EQ(count("lenet"), 61'706);
  EXPECT_EQ(count("mlp"), 784 * 256 + 256 + 2560 + 10);
  EXPECT_EQ(count("vgg_small"), 14'727'466);
  EXPECT_EQ(count("alexnet"), 61'100'840);
  EXPECT_EQ(count("alexnet_original"), 60'965'224);
  EXPECT_EQ(count("vgg11"), 132'863'336);
  EXPECT_EQ(count("vgg11_bn"), 132'868'840);
  EXPECT_EQ(count("vgg16"), 138'357'544);
  EXPECT_EQ(count("vgg16_bn"), 138'365'992);
  EXPECT_EQ(count("resnet18"), 11'689'512);
  EXPECT_EQ(count("resnet34"), 21'797'672);
  EXPECT_EQ(count("resnet50"), 25'557'032);
  EXPECT_EQ(count("resnet101"), 44'549'160);
  EXPECT_EQ(count("resnet152"), 60'192'808);
  EXPECT_EQ(count("inception_v3"), 27'161'264);
  EXPECT_EQ(count("gpt2"), 124'439'808);
  EXPECT_EQ(count("sparse_lr"), 4097);
}

TEST(Build, GivesTheOtherPublishedSizesOfGpt2) {
  auto count = [](const std::string& size) {
    return lay_out({.name = "gpt2", .size = size}).parameter_count();
  };
  EXPECT_EQ(count("124m"), 124'439'808);
  EXPECT_EQ(count("355m"), 354'823'168);
  EXPECT_EQ(count("774m"), 774'030'080);
  EXPECT_EQ(count("1558m"), 1'557'611'200);
}

TEST(Build, ReachesTheSmallGptOfTheBenchmarksByItsKeys) {
  ModelOptions options{
      .name = "gpt2", .layers = 6, .heads = 8, .width = 256, .vocabulary = 8192, .positions = 128};
  EXPECT_EQ(lay_out(options).parameter_count(), 6'868'992);
}

TEST(Build, NamesParametersAsTorchvisionAndHuggingFaceDo) {
  using testing::ElementsAre;
  using testing::IsSupersetOf;
  EXPECT_THAT(parameter_names(lay_out({.name = "mlp"})),
              ElementsAre("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"));
  EXPECT_THAT(parameter_names(lay_out({.name = "vgg16"})),
              IsSupersetOf({"features.0.weight", "features.28.bias", "classifier.6.weight"}));
  std::vector<std::string> resnet = parameter_names(lay_out({.name = "resnet50"}));
  EXPECT_EQ(resnet.size(), 161);
  EXPECT_THAT(resnet,
              IsSupersetOf({"bn1.weight", "layer1.0.downsample.1.bias", "layer4.2.conv3.weight", "fc.bias"}));
  EXPECT_THAT(
      parameter_names(lay_out({.name = "inception_v3"})),
      IsSupersetOf({"Conv2d_1a_3x3.conv.weight", "Mixed_7c.branch3x3dbl_3b.bn.bias", "AuxLogits.fc.weight"}));
  EXPECT_THAT(
      parameter_names(lay_out({.name = "gpt2", .layers = 1})),
      ElementsAre("wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.c_attn.weight",
                  "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight", "h.0.attn.c_proj.bias", "h.0.ln_2.weight",
                  "h.0.ln_2.bias", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight",
                  "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"));
}

TEST(Build, CutsModelsIntoBlocksForPipelines) {
  EXPECT_THAT(block_names(lay_out({.name = "lenet"})),
              testing::ElementsAre("conv1", "conv2", "fc1", "fc2", "fc3"));
  EXPECT_THAT(block_names(lay_out({.name = "gpt2", .layers = 2})),
              testing::ElementsAre("embedding", "h.0", "h.1", "head"));
  EXPECT_EQ(lay_out({.name = "vgg16"}).blocks.size(), 13 + 3);
  EXPECT_EQ(lay_out({.name = "resnet50"}).blocks.size(), 1 + 16 + 1);
  EXPECT_EQ(lay_out({.name = "inception_v3"}).blocks.size(), 5 + 11 + 1 + 1);
}

TEST(Build, RefusesKeysThatTheModelDoesNotUse) {
  EXPECT_EQ(build_error({.name = "vgg16", .layers = 3}),
            "model.layers is set, but vgg16 does not use it; it uses classes, image_size, dropout");
  EXPECT_THAT(build_error({.name = "lenet", .sizes = {1, 2}}), HasSubstr("model.sizes is set"));
  EXPECT_THAT(build_error({.name = "mlp", .dropout = 0.5}), HasSubstr("model.dropout is set"));
}

TEST(Build, RefusesAnUnknownModelAndNamesTheNearest) {
  std::string error = build_error({.name = "resnet51"});
  EXPECT_THAT(error, HasSubstr("Did you mean resnet50?"));
  EXPECT_THAT(error, HasSubstr("sparse_lr"));
}

TEST(Build, RefusesSizesThatAModelCannotHave) {
  EXPECT_THAT(build_error({.name = "inception_v3", .image_size = 74}), HasSubstr("at least 75x75"));
  EXPECT_THAT(build_error({.name = "alexnet", .classes = -1}), HasSubstr("model.classes = -1"));
  EXPECT_THAT(build_error({.name = "alexnet", .dropout = 1.5}), HasSubstr("model.dropout = 1.5"));
  EXPECT_THAT(build_error({.name = "mlp", .sizes = {784}}), HasSubstr("two or more widths"));
  EXPECT_THAT(build_error({.name = "mlp", .sizes = {784, 0, 10}}), HasSubstr("at least 1"));
  EXPECT_THAT(build_error({.name = "gpt2", .heads = 5}), HasSubstr("not a multiple of model.heads = 5"));
  EXPECT_THAT(build_error({.name = "gpt2", .size = "124m", .layers = 3}),
              HasSubstr("remove one or the other"));
  EXPECT_THAT(build_error({.name = "gpt2", .size = "125m"}), HasSubstr("124m, 355m, 774m and 1558m"));
}

TEST(Build, TakesOtherClassesAndImageSizes) {
  Model model = lay_out({.name = "resnet50", .classes = 10, .image_size = 64});
  EXPECT_EQ(to_string(model.sample), "image 3x64x64, 10 classes");
  EXPECT_EQ(model.module->named_parameters()["fc.weight"].size(0), 10);
}

// torchvision's published figures for one forward pass, in giga multiply-adds; that of Inception is without
// the auxiliary head.
TEST(Build, CountsTheWorkOfATrainingStep) {
  auto giga = [](const std::string& name) { return lay_out({.name = name}).step_flops_per_sample / 6e9; };
  EXPECT_NEAR(giga("resnet18"), 1.814, 0.001);
  EXPECT_NEAR(giga("resnet34"), 3.664, 0.001);
  EXPECT_NEAR(giga("resnet50"), 4.089, 0.001);
  EXPECT_NEAR(giga("resnet101"), 7.801, 0.001);
  EXPECT_NEAR(giga("resnet152"), 11.514, 0.001);
  EXPECT_NEAR(giga("vgg11"), 7.609, 0.001);
  EXPECT_NEAR(giga("vgg16"), 15.470, 0.001);
  EXPECT_NEAR(giga("alexnet"), 0.714, 0.001);
  EXPECT_NEAR(giga("inception_v3"), 5.713, 0.01);
}

TEST(Build, DrawsTheSameWeightsFromTheSameSeed) {
  auto draw = [] {
    torch::manual_seed(3);
    return build({.name = "lenet"}).module->parameters();
  };
  std::vector<torch::Tensor> first = draw();
  std::vector<torch::Tensor> second = draw();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i]));
}

}  // namespace
}  // namespace yoke::models
