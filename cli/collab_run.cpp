#include "cli/collab_run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/version.h"
#include "yoke/base/error.h"
#include "yoke/config/value.h"

namespace yoke::cli {
namespace {

const std::vector<std::string> kCommon = {
    "data.name",       "data.limit",         "data.seq_len",       "data.samples",
    "data.noise",      "data.shuffle",       "train.epochs",       "train.steps",
    "train.seed",      "train.optimizer",    "train.lr",           "train.momentum",
    "train.nesterov",  "train.weight_decay", "train.beta1",        "train.beta2",
    "train.eps",       "train.l1",           "train.l2",           "train.ftrl_beta",
    "train.clip_norm", "train.schedule",     "train.warmup_steps", "train.warmup_epochs",
    "train.min_lr",    "train.decay_epochs", "train.decay",        "collab.target_batch",
    "collab.robust",   "collab.suspects"};

bool is_common(const config::Entry& entry) {
  return entry.section == "model" || std::find(kCommon.begin(), kCommon.end(), entry.key()) != kCommon.end();
}

void refuse(const std::string& what, const std::string& why) {
  throw ConfigError("{} cannot be combined with `yoke collab`: {}.", what, why);
}

}  // namespace

nlohmann::json common_keys(const Configuration& configuration) {
  nlohmann::json keys = {{"yoke", kVersion}};
  for (const config::Entry& entry : configuration.schema.entries())
    if (is_common(entry)) keys[entry.key()] = config::to_toml(entry.field.get());
  return keys;
}

std::string to_toml(const nlohmann::json& run) {
  const Configuration known;
  std::map<std::string, std::string> sections;
  for (const config::Entry& entry : known.schema.entries())
    if (is_common(entry) && run.contains(entry.key()) && run.at(entry.key()).is_string())
      sections[entry.section] +=
          fmt::format("{} = {}\n", entry.field.name, run.at(entry.key()).get<std::string>());
  std::string text;
  for (auto& [section, lines] : sections) text += fmt::format("[{}]\n{}", section, lines);
  return text;
}

void check_collab(const Configuration& configuration) {
  const RunConfig& config = configuration.values;
  for (const config::Entry& entry : configuration.schema.entries())
    if (entry.section == "parallel" && !entry.is_initial())
      refuse(fmt::format("{} = {}", entry.key(), config::to_toml(entry.field.get())),
             "every peer computes on one device. Remove it");
  if (config.collab.suspects > 0 && config.collab.robust != "krum")
    throw ConfigError(
        "collab.suspects = {} with collab.robust = \"{}\": only krum uses it. Remove one of the two.",
        config.collab.suspects, config.collab.robust);
  if (config.elastic.enabled) refuse("elastic.enabled = true", "peers come and go anyway");
  if (config.train.compute.precision == "fp16")
    refuse("train.precision = \"fp16\"", "peers would scale their losses differently. Use bf16 or fp32");
  if (config.train.optimizer.optimizer == "lbfgs")
    refuse("train.optimizer = \"lbfgs\"", "it evaluates a batch again, which others hold. Use sgd or adamw");
}

int64_t collab_steps(const RunConfig& config, int64_t samples) {
  if (config.train.loop.steps > 0) return config.train.loop.steps;
  const double batches = static_cast<double>(samples) / static_cast<double>(config.collab.target_batch);
  return std::max<int64_t>(1, std::llround(config.train.loop.epochs * batches));
}

}  // namespace yoke::cli
