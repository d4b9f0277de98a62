#include "cli/keys_read.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::cli {
namespace {

// What a command reads of a configuration, and what it sets itself. A file may contain more.
struct KeysRead {
  const char* command;
  std::vector<std::string> keys;
  std::vector<std::string> except;
};

const std::vector<std::string> kOptimizerKeys = {
    "train.optimizer",    "train.lr",          "train.momentum",    "train.nesterov",
    "train.weight_decay", "train.beta1",       "train.beta2",       "train.eps",
    "train.history",      "train.inner_steps", "train.line_search", "train.clip_norm",
    "train.decay_biases", "train.groups",      "train.trust",       "train.ema"};
const std::vector<std::string> kComputeKeys = {"train.device", "train.precision",     "train.threads",
                                               "train.conv",   "train.channels_last", "train.seed"};

std::vector<std::string> all_of_keys(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

const std::vector<KeysRead>& reads() {
  static const std::vector<KeysRead> table = {
      {"eval",
       all_of_keys({{"model.*", "data.*"}, kComputeKeys}),
       {"data.shuffle", "data.prefetch", "data.drop_last", "data.jitter", "data.mixup"}},
      {"model info", {"model.*"}, {}},
      {"model export", {"model.*", "train.seed"}, {}},
      {"estimate",
       all_of_keys({{"model.*", "data.*", "train.epochs", "train.steps", "train.preset", "train.accumulate",
                     "train.accumulate_tokens", "train.label_smoothing", "train.recompute",
                     "train.cuda_graph", "train.deterministic"},
                    kOptimizerKeys,
                    kComputeKeys}),
       {"data.shuffle", "data.workers", "data.prefetch", "data.augment", "data.jitter", "data.mixup",
        "data.on_bad_file"}},
      {"profile",
       all_of_keys({{"model.*", "data.batch_size", "data.seq_len", "train.recompute"}, kComputeKeys}),
       {}},
      {"bench step",
       all_of_keys({{"model.*", "train.recompute", "train.cuda_graph", "train.deterministic"},
                    kOptimizerKeys,
                    kComputeKeys}),
       {"model.name", "train.precision", "train.device", "train.recompute"}},
      {"bench scaling",
       all_of_keys(
           {{"model.*", "train.recompute", "train.cuda_graph", "train.deterministic", "train.sync_batchnorm",
             "train.accumulate", "parallel.*", "ddp.*", "pipeline.*", "slowdown.*"},
            kOptimizerKeys,
            kComputeKeys}),
       {"model.name", "parallel.sync", "parallel.plan", "parallel.partition", "parallel.split"}},
      {"verify",
       {"model.*", "data.*", "train.*", "parallel.*", "ddp.*", "average.*", "hybrid.*", "ps.*",
        "sandblaster.*", "slowdown.*", "pipeline.*"},
       {"data.workers",
        "data.prefetch",
        "train.epochs",
        "train.steps",
        "train.evaluate",
        "train.non_finite",
        "train.schedule",
        "train.warmup_steps",
        "train.warmup_epochs",
        "train.min_lr",
        "train.decay_epochs",
        "train.decay",
        "train.scale_lr",
        "train.precision",
        "train.cuda_graph",
        "parallel.plan",
        "train.restart_epochs",
        "train.restart_factor",
        "train.accumulate_tokens",
        "train.ema",
        "parallel.backend",
        "ps.place",
        "ps.adasync",
        "ps.adasync_interval",
        "ps.n_push",
        "ps.n_fetch",
        "ps.warm_start",
        "ps.on_worker_loss",
        "ps.on_server_loss",
        "ps.restarts",
        "ps.log_updates",
        "ps.max_servers",
        "ps.min_workers",
        "ps.max_workers"}},
      {"lab stragglers",
       {"model.*", "data.*", "train.*", "parallel.*", "ps.*", "slowdown.*", "out.*"},
       {"parallel.sync", "ps.policy", "ps.servers", "ps.k", "ps.max_delay", "slowdown.law",
        "slowdown.workers", "out.dir"}},
      {"lab downpour",
       {"model.*", "data.*", "train.*", "parallel.*", "ps.*", "sandblaster.*", "slowdown.*", "out.*"},
       {"parallel.sync", "ps.policy", "ps.servers", "train.optimizer", "train.line_search", "train.momentum",
        "train.steps", "train.epochs", "train.evaluate", "out.dir"}},
      {"collab start",
       {"model.*", "data.*", "train.*", "collab.*", "out.dir", "out.log_every", "checkpoint.every_steps"},
       {"data.workers", "data.prefetch", "data.drop_last", "train.accumulate", "train.evaluate",
        "train.sync_batchnorm", "train.non_finite", "train.scale_lr", "train.history", "train.inner_steps",
        "train.accumulate_tokens", "train.ema", "train.line_search"}},
      {"collab join",
       {"model.*", "data.*", "train.*", "collab.*", "out.dir", "out.log_every", "checkpoint.every_steps"},
       {"data.workers", "data.prefetch", "data.drop_last", "train.accumulate", "train.evaluate",
        "train.sync_batchnorm", "train.non_finite", "train.scale_lr", "train.history", "train.inner_steps",
        "train.accumulate_tokens", "train.ema", "train.line_search", "collab.min_peers"}},
      {"lab averaging",
       {"model.*", "data.*", "train.*", "parallel.*", "average.*", "slowdown.*", "out.*"},
       {"parallel.sync", "parallel.data", "average.method", "average.graph", "average.every", "average.start",
        "average.fragments", "average.overlap", "train.steps", "train.epochs", "out.dir", "out.log_every"}},
  };
  return table;
}

bool any_key_matches(const std::vector<std::string>& patterns, const std::string& key) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return key_matches(pattern, key); });
}

}  // namespace

bool key_matches(const std::string& pattern, const std::string& key) {
  if (pattern.back() != '*') return pattern == key;
  return key.rfind(pattern.substr(0, pattern.size() - 1), 0) == 0;
}

void refuse_unread_keys(const std::string& command, const std::vector<config::Override>& typed) {
  for (const KeysRead& row : reads()) {
    if (command != row.command) continue;
    for (const config::Override& change : typed)
      if (!any_key_matches(row.keys, change.key) || any_key_matches(row.except, change.key))
        throw ConfigError("{}: `yoke {}` does not use {}. `yoke {} --help` shows its own options.",
                          change.origin, command, change.key, command);
  }
}

}  // namespace yoke::cli
