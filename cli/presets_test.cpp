#include "cli/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_config.h"
#include "yoke/base/error.h"

namespace yoke::cli {
namespace {

using ::testing::HasSubstr;

config::Override preset(const std::string& name) {
  return {"train.preset", name, "--train.preset"};
}

TEST(Presets, ImagenetIsTheRecipeOfResNet) {
  Configuration configuration;
  configuration.load("", {preset("imagenet")});
  const RunConfig& config = configuration.values;
  EXPECT_EQ(config.data.batch_size, 256);
  EXPECT_EQ(config.train.optimizer.optimizer, "sgd");
  EXPECT_EQ(config.train.optimizer.lr, 0.1);
  EXPECT_EQ(config.train.optimizer.momentum, 0.9);
  EXPECT_EQ(config.train.optimizer.weight_decay, 1e-4);
  EXPECT_EQ(config.train.schedule.schedule, "step");
  EXPECT_EQ(config.train.schedule.decay_epochs, (std::vector<double>{30, 60, 80}));
  EXPECT_EQ(config.train.loop.epochs, 90);
}

TEST(Presets, TheLinearRuleHasOneRateForEachGlobalBatch) {
  Configuration configuration;
  configuration.load("", {preset("imagenet_linear")});
  const RunConfig& config = configuration.values;
  EXPECT_DOUBLE_EQ(config.train.optimizer.lr / static_cast<double>(config.data.batch_size), 0.1 / 256);
  EXPECT_TRUE(config.train.schedule.scale_lr);
  EXPECT_FALSE(config.train.optimizer.decay_biases);
}

TEST(Presets, TricksAreThoseOfThePublication) {
  Configuration configuration;
  configuration.load("", {preset("imagenet_tricks"), {"data.name", "images", "--data.name"}});
  const RunConfig& config = configuration.values;
  EXPECT_EQ(config.train.loop.epochs, 200);
  EXPECT_EQ(config.train.loop.label_smoothing, 0.1);
  EXPECT_EQ(config.train.schedule.schedule, "cosine");
  EXPECT_EQ(config.train.schedule.warmup_epochs, 5);
  EXPECT_TRUE(config.train.optimizer.nesterov);
  EXPECT_DOUBLE_EQ(config.train.optimizer.lr / static_cast<double>(config.data.batch_size), 0.1 / 256);
  EXPECT_EQ(config.data.augment, "imagenet");
  EXPECT_EQ(config.data.mixup, 0.2);
  EXPECT_EQ(config.data.jitter, 0.4);
}

TEST(Presets, AugmentOnlyWherePicturesAreRead) {
  for (const Preset& one : presets()) {
    Configuration pictures, synthetic, own;
    pictures.load("", {preset(one.name), {"data.name", "images", "--data.name"}});
    EXPECT_EQ(pictures.values.data.augment, "imagenet") << one.name;
    EXPECT_EQ(pictures.schema.at("data.augment").origin, "preset " + one.name);
    synthetic.load("", {preset(one.name)});
    EXPECT_EQ(synthetic.values.data.augment, "none") << one.name;
    own.load("", {preset(one.name),
                  {"data.name", "images", "--data.name"},
                  {"data.augment", "none", "--data.augment"},
                  {"data.mixup", "0.5", "--data.mixup"}});
    EXPECT_EQ(own.values.data.augment, "none") << one.name;
    EXPECT_EQ(own.values.data.mixup, 0.5) << one.name;
  }
}

TEST(Presets, TheReferenceListsEveryKeyOfEveryOne) {
  Configuration configuration;
  const std::string text = preset_reference(configuration.schema);
  for (const Preset& one : presets()) {
    EXPECT_THAT(text, HasSubstr("- `" + one.name + "` ("));
    for (const auto& [key, value] : one.settings) EXPECT_THAT(text, HasSubstr("`" + key + " = "));
  }
  EXPECT_THAT(text, HasSubstr("`train.decay_epochs = [30, 60, 80]`"));
  EXPECT_THAT(text, HasSubstr("`data.augment = \"imagenet\"`"));
}

TEST(Presets, KeysThatTheUserSetsWin) {
  Configuration configuration;
  configuration.load(
      "", {preset("imagenet"), {"train.lr", "0.4", "--train.lr"}, {"train.decay", "0.1", "--train.decay"}});
  EXPECT_EQ(configuration.values.train.optimizer.lr, 0.4);
  EXPECT_EQ(configuration.schema.at("train.lr").origin, "--train.lr");
  EXPECT_EQ(configuration.schema.at("train.decay").origin, "--train.decay");
  EXPECT_EQ(configuration.schema.at("train.momentum").origin, "preset imagenet");
  EXPECT_THAT(configuration.schema.to_toml(true), HasSubstr("# preset imagenet"));
}

TEST(Presets, EveryOneIsAcceptedAndConsistent) {
  for (const Preset& one : presets()) {
    Configuration configuration;
    EXPECT_NO_THROW(configuration.load("", {preset(one.name)})) << one.name;
    EXPECT_FALSE(one.source.empty());
  }
  for (const std::string& name : engine::preset_names())
    EXPECT_TRUE(name.empty() || std::any_of(presets().begin(), presets().end(),
                                            [&](const Preset& one) { return one.name == name; }))
        << name;
  Configuration configuration;
  EXPECT_THROW(configuration.load("", {preset("imagenet_of_tomorrow")}), ConfigError);
}

}  // namespace
}  // namespace yoke::cli
