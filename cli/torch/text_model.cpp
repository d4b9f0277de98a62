#include "cli/torch/text_model.h"

#include <nlohmann/json.hpp>

#include "cli/run_config.h"
#include "cli/torch/hugging_face.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/config/changes.h"
#include "yoke/data/formats/text/tokenizer_file.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

// [model] of a configuration as stored in a checkpoint; keys of other sections may be of another version.
models::ModelOptions model_of(const std::string& stored, const std::string& source) {
  std::string text = "[model]\n";
  bool named = false;
  for (const auto& [key, value] : config::values_of(stored)) {
    if (!key.starts_with("model.")) continue;
    named = named || key == "model.name";
    text += key.substr(6) + " = " + value + "\n";
  }
  if (!named)
    throw ConfigError(
        "{}: stores weights without a configuration, so the model is unknown. Train it first, or "
        "give a folder with config.json.",
        source);
  Configuration configuration;
  configuration.schema.read_text(text, source + ", configuration");
  return configuration.values.model;
}

void fill(TextModel& text, const models::ModelOptions& options,
          const std::vector<checkpoint::NamedTensor>& weights) {
  if (options.name != "gpt2")
    throw ConfigError("{}: holds a model {}; only gpt2 generates text.", text.source, options.name);
  text.model = models::lay_out(options);
  std::vector<checkpoint::NamedTensor> own;
  for (const auto& item : text.model.module->named_parameters()) own.emplace_back(item.key(), item.value());
  for (const auto& item : text.model.module->named_buffers()) own.emplace_back(item.key(), item.value());
  checkpoint::copy_weights(weights, own, text.source);
  text.model.module->eval();
}

TextModel from_transformers(const fs::path& folder) {
  TextModel text;
  text.source = folder.string();
  const fs::path file = folder / "config.json";
  const nlohmann::json config = parse_json(read_file(file, 1 << 20), file.string());
  fill(text, gpt2_options(config, file.string()), checkpoint::load_weights(folder));
  return text;
}

TextModel from_checkpoint(const fs::path& path, fs::path& run) {
  auto loaded = checkpoint::load_newest(path);
  if (!loaded)
    throw CheckpointError(
        "{}: no checkpoint, and no config.json of transformers, in this folder. A run has its checkpoints in "
        "checkpoints/step-N.",
        path.string());
  for (const auto& other : loaded->passed_over)
    log::warn("passed over checkpoint {}: {}", other.path.string(), other.problem);
  TextModel text;
  text.source = loaded->path.string();
  run = run_of(*loaded);
  fill(text, model_of(loaded->state.rest.value("configuration", ""), text.source),
       published_weights(loaded->state));
  return text;
}

}  // namespace

TextModel load_text_model(const std::string& path, const std::string& tokenizer) {
  if (!fs::is_directory(path))
    throw ConfigError("{}: {}. Give the folder of a run, a checkpoint, or a folder saved by transformers.",
                      path, fs::exists(path) ? "is not a folder" : "no such folder");
  fs::path folder = path;
  TextModel text =
      fs::exists(folder / "config.json") ? from_transformers(folder) : from_checkpoint(path, folder);
  const fs::path own = folder / data::kTokenizerName;
  if (tokenizer.empty() && !fs::exists(own))
    throw ConfigError(
        "{}: no such file. Name the tokenizer that the token files were made with: --tokenizer FILE (for "
        "bytes: "
        "tokenizer.json in the folder that `yoke data tokens` wrote).",
        own.string());
  text.tokenizer = data::read_tokenizer(tokenizer.empty() ? own.string() : tokenizer);
  return text;
}

}  // namespace yoke::cli
