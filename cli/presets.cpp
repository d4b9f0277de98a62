#include "cli/presets.h"

#include <fmt/core.h>

#include "yoke/base/text.h"

namespace yoke::cli {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

void apply(config::Schema& schema, const Settings& settings, const std::string& origin) {
  for (const auto& [key, value] : settings)
    if (schema.at(key).origin == "built-in") schema.set({key, value, origin});
}

std::string listed(const config::Schema& schema, const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) {
    const bool quoted = std::holds_alternative<std::string>(schema.at(key).initial);
    const bool list = std::holds_alternative<config::Array>(schema.at(key).initial);
    text += fmt::format("{}`{} = {}`", text.empty() ? "" : ", ", key,
                        quoted ? "\"" + value + "\""
                        : list ? "[" + join(split(value, ','), ", ") + "]"
                               : value);
  }
  return text;
}

}  // namespace

// Batches are those of one replica: a global batch of 256 on 8 replicas is data.batch_size = 32.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"imagenet",
       "He et al. 2016, with the steps and the augmentation of torchvision's reference",
       {{"data.batch_size", "256"},
        {"train.epochs", "90"},
        {"train.optimizer", "sgd"},
        {"train.lr", "0.1"},
        {"train.momentum", "0.9"},
        {"train.weight_decay", "0.0001"},
        {"train.schedule", "step"},
        {"train.decay_epochs", "30,60,80"},
        {"train.decay", "0.1"}},
       {{"data.augment", "imagenet"}}},
      // 0.1 for 256 samples is 0.0125 for the 32 of a replica, times replicas.
      {"imagenet_linear",
       "Goyal et al. 2017: linear rule with warm-up, no weight decay for norms and biases",
       {{"data.batch_size", "32"},
        {"train.epochs", "90"},
        {"train.optimizer", "sgd"},
        {"train.lr", "0.0125"},
        {"train.scale_lr", "true"},
        {"train.warmup_epochs", "5"},
        {"train.momentum", "0.9"},
        {"train.weight_decay", "0.0001"},
        {"train.decay_biases", "false"},
        {"train.schedule", "step"},
        {"train.decay_epochs", "30,60,80"},
        {"train.decay", "0.1"}},
       {{"data.augment", "imagenet"}}},
      {"imagenet_tricks",
       "He et al. 2019, bag of tricks: cosine after warm-up, label smoothing, mixup, 200 epochs",
       {{"data.batch_size", "32"},
        {"train.epochs", "200"},
        {"train.optimizer", "sgd"},
        {"train.lr", "0.0125"},
        {"train.scale_lr", "true"},
        {"train.warmup_epochs", "5"},
        {"train.momentum", "0.9"},
        {"train.nesterov", "true"},
        {"train.weight_decay", "0.0001"},
        {"train.decay_biases", "false"},
        {"train.schedule", "cosine"},
        {"train.label_smoothing", "0.1"}},
       {{"data.augment", "imagenet"}, {"data.jitter", "0.4"}, {"data.mixup", "0.2"}}},
  };
  return all;
}

void apply_preset(config::Schema& schema, const std::string& name, bool reads_pictures) {
  for (const Preset& preset : presets()) {
    if (preset.name != name) continue;
    const std::string origin = "preset " + name;
    apply(schema, preset.settings, origin);
    if (reads_pictures) apply(schema, preset.pictures, origin);
  }
}

std::string preset_reference(const config::Schema& schema) {
  std::string text;
  for (const Preset& preset : presets())
    text += fmt::format("- `{}` ({}): {}. Of pictures also {}.\n", preset.name, preset.source,
                        listed(schema, preset.settings), listed(schema, preset.pictures));
  return text;
}

}  // namespace yoke::cli
