#include "cli/idle_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cli/keys_read.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/data/formats/names.h"
#include "yoke/data/formats/split_files.h"
#include "yoke/models/outline/outline.h"
#include "yoke/parallel/fit.h"
#include "yoke/parallel/registry.h"
#include "yoke/plan/policies/delay_law.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::cli {
namespace {

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A run as seen by the table below.
struct Run {
  Run(const Configuration& configuration, int workers)
      : schema(configuration.schema),
        config(configuration.values),
        ranks(workers),
        served(!parallel::choose(config).sync().lockstep),
        threads(parallel::in_one_process(config)),
        averaging(parallel::choose(config).sync().replicas_differ),
        summing(parallel::choose(config).sync().has_spares),
        partitioned(!config.parallel.partition.empty()),
        staged(config.parallel.pipeline > 1 || !config.parallel.plan.empty() || partitioned),
        optimizer(config.train.optimizer.optimizer),
        rule(plan::traits_of(plan::parse_rule(config.ps.policy))) {}

  bool averages() const { return !served && !threads && !staged; }  // over ranks, if there are several
  int64_t replicas() const {
    if (partitioned && ranks > 1) return ranks / parallel::parts_of(config, ranks);
    const int64_t stages = staged && config.parallel.plan.empty() ? config.parallel.pipeline : 1;
    return ranks / (stages * std::max<int64_t>(1, config.parallel.tensor));
  }
  bool gpu() const { return config.train.compute.device != "cpu"; }
  bool on(std::initializer_list<const char*> models) const { return is_one_of(config.model.name, models); }
  bool has_batchnorm() const {
    return !models::is_built_in(config.model.name) ||
           on({"vgg11_bn", "vgg16_bn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
               "inception_v3"});
  }
  bool takes_tokens() const { return !models::is_built_in(config.model.name) || on({"gpt2"}); }
  bool has_images() const { return !on({"mlp", "gpt2", "s2vt", "sparse_lr"}); }

  const config::Schema& schema;
  const RunConfig& config;
  int ranks;
  bool served, threads, averaging, summing, partitioned, staged;
  const std::string& optimizer;
  const plan::RuleTraits& rule;
};

// Why a key is idle; empty: it has an effect.
struct Reason {
  Reason() = default;
  Reason(std::string text) : why(std::move(text)) {}
  Reason(const char* text) : why(text) {}
  Reason(std::string text, bool in_files) : why(std::move(text)), file_may(in_files) {}
  std::string why;
  bool file_may = false;  // a file may contain it: what makes it idle was chosen later
  bool told = false;      // logged, not refused: runs over many models or rules share their options
};

const Reason kWorks;

Reason unless(bool works, Reason why) {
  return works ? kWorks : std::move(why);
}

Reason alone(const std::string& why) {
  return {why + "; start more ranks with --nproc N", true};
}

// Idle because of the value of `key`.
Reason because_of(const Run& run, const char* key, const std::string& more = "") {
  const config::Entry& entry = run.schema.at(key);
  std::string why = fmt::format("{} = {}", key, config::to_toml(entry.field.get()));
  return {why + (more.empty() ? "" : "; " + more), entry.is_typed()};
}

Reason of_another_model(const Run& run, const std::string& what) {
  Reason reason = because_of(run, "model.name", what);
  reason.told = true;
  return reason;
}

Reason of_another_rule(const Run& run, const std::string& rules) {
  Reason reason = because_of(run, "ps.policy", "it is for " + rules);
  reason.told = run.schema.at("ps.policy").origin != "built-in";
  return reason;
}

Reason needs_choice(const Run& run, const char* key, std::initializer_list<const char*> which) {
  if (is_one_of(std::get<std::string>(run.schema.at(key).field.get()), which)) return kWorks;
  return because_of(run, key, "it is for " + join({which.begin(), which.end()}, " and "));
}

Reason needs_optimizer(const Run& run, std::initializer_list<const char*> which) {
  return needs_choice(run, "train.optimizer", which);
}

Reason penalises(const Run& run) {
  return needs_optimizer(run, {"ftrl", "proximal"});
}

Reason needs_schedule(const Run& run, std::initializer_list<const char*> which) {
  return needs_choice(run, "train.schedule", which);
}

Reason reads_pictures(const Run& run) {
  return unless(data::reads_pictures(run.config.data.name), because_of(run, "data.name", "it is for images"));
}

Reason reads_ahead(const Run& run) {
  return unless(!run.served || run.config.ps.max_workers == 0,
                because_of(run, "ps.max_workers", "batches are handed out one by one"));
}

Reason has_moments(const Run& run) {
  return needs_optimizer(run, {"adamw", "lamb", "lion"});
}

Reason restarts(const Run& run) {
  return needs_schedule(run, {"cosine_restarts"});
}

constexpr const char* kOneReplica = "one replica on these ranks; start more, or set parallel.data";

// One rank of `yoke run --elastic`: others may join it.
bool may_grow(const Run& run) {
  return run.config.elastic.enabled && run.schema.at("elastic.enabled").origin.starts_with("YOKE_");
}

Reason needs_averaging(const Run& run) {
  if (run.averages() && run.ranks == 1) return may_grow(run) ? kWorks : alone("there is only one rank");
  if (run.averages()) return unless(run.replicas() > 1, kOneReplica);
  return fmt::format("{}; it applies to data parallel training over ranks",
                     run.partitioned ? "parallel.partition"
                     : run.staged    ? "a pipeline"
                                     : fmt::format("parallel.sync = \"{}\"", run.config.parallel.sync));
}

Reason needs_elastic(const Run& run) {
  return unless(run.config.elastic.enabled, because_of(run, "elastic.enabled"));
}

// Replicas, or stages of a pipeline.
Reason may_be_elastic(const Run& run) {
  return run.staged && !run.partitioned && !run.served && run.ranks > 1 ? kWorks : needs_averaging(run);
}

Reason needs_elastic_shards(const Run& run) {
  if (!run.config.elastic.enabled) return needs_elastic(run);
  if (run.staged) return kWorks;
  return unless(run.config.parallel.zero > 0, because_of(run, "parallel.zero"));
}

Reason steps_count(const Run& run) {
  const config::Entry &steps = run.schema.at("train.steps"), &epochs = run.schema.at("train.epochs");
  if (run.config.train.loop.steps == 0 || !epochs.is_typed()) return kWorks;
  return fmt::format("train.steps = {} ({}) overrides it; set train.steps = 0", run.config.train.loop.steps,
                     steps.origin);
}

Reason gradients_travel(const Run& run) {
  if (Reason reason = needs_averaging(run); !reason.why.empty()) return reason;
  return unless(
      !run.averaging || run.config.average.method == "post_local",
      because_of(run, "parallel.sync", "gradients are averaged by average.method = post_local only"));
}

Reason not_on_their_own(const Run& run) {
  if (Reason reason = needs_averaging(run); !reason.why.empty()) return reason;
  return unless(!run.averaging, because_of(run, "parallel.sync", "replicas compute on their own"));
}

// Also between the replicas of a stage or of a part.
Reason between_replicas(const Run& run) {
  const bool parts = run.staged || run.partitioned;
  return parts && !run.served ? unless(run.replicas() > 1, kOneReplica) : needs_averaging(run);
}

// With servers, it is how gradients are pushed.
Reason travels_compressed(const Run& run) {
  if (!run.served) return between_replicas(run);
  return unless(run.optimizer != "lbfgs",
                because_of(run, "train.optimizer", "portions are pushed as they are"));
}

Reason shared_statistics(const Run& run) {
  if (run.averaging) return not_on_their_own(run);
  Reason reason = run.served ? kWorks : between_replicas(run);
  if (!reason.why.empty() || run.has_batchnorm()) return reason;
  return of_another_model(run, "it has no BatchNorm");
}

Reason needs_method(const Run& run, std::initializer_list<const char*> which) {
  return needs_choice(run, "average.method", which);
}

Reason needs_rounds(const Run& run) {
  return needs_method(run, {"local", "post_local", "diloco", "gossip"});
}

// Also over the replicas of a stage or of slices.
Reason shards(const Run& run) {
  if (run.served || run.threads) return needs_averaging(run);
  if (run.ranks == 1) return may_grow(run) ? kWorks : alone("there is only one rank");
  return unless(run.replicas() > 1, kOneReplica);
}

// Replicas record their steps if nothing in them communicates, waits for the host or changes.
Reason recorded_by_replicas(const Run& run) {
  if (Reason reason = not_on_their_own(run); !reason.why.empty()) return reason;
  const RunConfig& c = run.config;
  const std::pair<const char*, bool> obstacles[] = {
      {"parallel.zero", c.parallel.zero > 0},
      {"parallel.tensor", c.parallel.tensor > 1},
      {"train.sync_batchnorm", c.train.loop.sync_batchnorm},
      {"train.precision", c.train.compute.precision == "fp16"},
      {"train.recompute", c.train.compute.recompute != "none"},
      {"data.drop_last", !c.data.drop_last},
      {"ddp.delay_allreduce", !c.ddp.delay_allreduce},
      {"ddp.find_unused", c.ddp.find_unused},
      {"ddp.gradient_as_bucket_view", !c.ddp.gradient_as_bucket_view},
  };
  for (const auto& [key, obstructs] : obstacles)
    if (obstructs) return because_of(run, key);
  return kWorks;
}

Reason graph(const Run& run) {
  if (!run.gpu()) return because_of(run, "train.device");
  if (run.optimizer == "lbfgs") return because_of(run, "train.optimizer");
  if (run.served) return because_of(run, "parallel.sync");
  if (run.ranks > 1 && !run.on({"sparse_lr"})) return recorded_by_replicas(run);
  const bool skips_on_device = run.optimizer == "sgd" || run.optimizer == "adamw";
  if (run.config.train.compute.precision == "fp16" && !skips_on_device)
    return because_of(run, "train.optimizer");
  if (run.config.train.compute.precision == "fp16" && run.config.train.optimizer.ema > 0)
    return because_of(run, "train.ema", "fp16 steps with it are not recorded");
  return run.on({"sparse_lr"}) ? because_of(run, "model.name") : kWorks;
}

Reason follows_a_rule(const Run& run) {
  if (!run.served || run.optimizer != "lbfgs") return kWorks;
  return because_of(run, "train.optimizer", "workers share every batch instead of following a rule");
}

Reason has_sparse_samples(const Run& run) {
  if (!models::is_built_in(run.config.model.name) || run.on({"sparse_lr"})) return kWorks;
  return because_of(run, "model.name", "its samples are not sparse");
}

Reason pushes_rows(const Run& run) {
  Reason reason = has_sparse_samples(run);
  if (!reason.why.empty() || run.config.ps.sparse != "off") return reason;
  return because_of(run, "ps.sparse");
}

Reason judges_zeros(const Run& run) {
  if (Reason reason = pushes_rows(run); !reason.why.empty()) return reason;
  if (Reason reason = needs_optimizer(run, {"proximal"}); !reason.why.empty()) return reason;
  return unless(run.config.train.optimizer.l1 > 0, because_of(run, "train.l1"));
}

using Applies = Reason (*)(const Run&);

struct KeyRow {
  const char* key;  // or "section.*"
  Applies check;
};

// Where a key applies; the first reason counts. Keys not listed apply everywhere, or are refused where they
// are used: keys of [model] by the models, contradictory values by Configuration::load().
const KeyRow kKeyRows[] = {
    {"data.dir",
     [](const Run& r) {
       return unless(r.config.data.name != "synthetic", because_of(r, "data.name", "it reads no files"));
     }},
    {"data.samples",
     [](const Run& r) {
       return unless(r.config.data.name == "synthetic" || !data::is_built_in_data(r.config.data.name),
                     because_of(r, "data.name", "data.limit limits it"));
     }},
    {"data.noise",
     [](const Run& r) {
       return unless(r.config.data.name == "synthetic",
                     because_of(r, "data.name", "it is for synthetic samples"));
     }},
    {"data.noise",
     [](const Run& r) {
       return unless(!r.on({"gpt2", "s2vt"}), of_another_model(r, "its samples have no single label"));
     }},
    {"data.seq_len",
     [](const Run& r) {
       return unless(r.takes_tokens(), because_of(r, "model.name", "it takes no tokens"));
     }},
    {"data.augment", reads_pictures},
    {"data.jitter", reads_pictures},
    {"data.mixup", reads_pictures},
    {"data.on_bad_file", reads_pictures},
    {"data.workers", reads_ahead},
    {"data.prefetch",
     [](const Run& r) { return r.config.data.workers > 0 ? reads_ahead(r) : because_of(r, "data.workers"); }},
    {"train.epochs", steps_count},
    {"train.sync_batchnorm", shared_statistics},
    {"train.accumulate_tokens",
     [](const Run& r) {
       return unless(r.takes_tokens(), because_of(r, "model.name", "it takes no tokens"));
     }},
    {"train.momentum",
     [](const Run& r) {
       return needs_optimizer(r, {"sgd", "lars"});
     }},
    {"train.nesterov",
     [](const Run& r) {
       return needs_optimizer(r, {"sgd", "lars"});
     }},
    {"train.beta1", has_moments},
    {"train.beta2", has_moments},
    {"train.eps",
     [](const Run& r) {
       return needs_optimizer(r, {"adamw", "adagrad", "lars", "lamb"});
     }},
    {"train.trust", [](const Run& r) { return needs_optimizer(r, {"lars"}); }},
    {"train.decay_biases",
     [](const Run& r) {
       return unless(r.config.train.optimizer.weight_decay > 0, because_of(r, "train.weight_decay"));
     }},
    {"train.l1", penalises},
    {"train.l2", penalises},
    {"train.ftrl_beta", [](const Run& r) { return needs_optimizer(r, {"ftrl"}); }},
    {"train.history", [](const Run& r) { return needs_optimizer(r, {"lbfgs"}); }},
    {"train.inner_steps", [](const Run& r) { return needs_optimizer(r, {"lbfgs"}); }},
    {"train.line_search", [](const Run& r) { return needs_optimizer(r, {"lbfgs"}); }},
    {"train.clip_norm",
     [](const Run& r) {
       return unless(r.optimizer != "lbfgs",
                     because_of(r, "train.optimizer", "it evaluates gradients again and does not clip them"));
     }},
    {"train.schedule",
     [](const Run& r) {
       return unless(
           r.config.train.schedule.schedule != "step" || !r.config.train.schedule.decay_epochs.empty(),
           "train.decay_epochs is empty");
     }},
    {"train.min_lr",
     [](const Run& r) {
       return needs_schedule(r, {"cosine", "cosine_restarts", "linear"});
     }},
    {"train.decay_epochs", [](const Run& r) { return needs_schedule(r, {"step"}); }},
    {"train.decay", [](const Run& r) { return needs_schedule(r, {"step"}); }},
    {"train.restart_epochs", restarts},
    {"train.restart_factor", restarts},
    {"train.scale_lr", [](const Run& r) { return unless(r.replicas() > 1, alone("one replica")); }},
    {"train.conv", [](const Run& r) { return unless(!r.gpu(), because_of(r, "train.device")); }},
    {"train.conv",
     [](const Run& r) { return unless(r.has_images(), of_another_model(r, "it has no convolutions")); }},
    {"train.channels_last", [](const Run& r) { return unless(r.gpu(), because_of(r, "train.device")); }},
    {"train.channels_last",
     [](const Run& r) { return unless(r.has_images(), of_another_model(r, "it takes no images")); }},
    {"train.cuda_graph", graph},
    {"parallel.pipeline",
     [](const Run& r) {
       return unless(r.config.parallel.plan.empty(), "parallel.plan sets the number of stages");
     }},
    {"parallel.plan",
     [](const Run& r) { return unless(r.ranks > 1, alone("a pipeline needs several ranks")); }},
    {"parallel.partition",
     [](const Run& r) { return unless(r.ranks > 1, alone("a partition needs several ranks")); }},
    {"parallel.sync",
     [](const Run& r) {
       const bool among_replicas = r.averaging || r.summing;
       return unless(r.threads ? r.ranks > 1 : !among_replicas || r.replicas() > 1, alone("one replica"));
     }},
    {"parallel.sequence",
     [](const Run& r) { return unless(r.config.parallel.tensor > 1, because_of(r, "parallel.tensor")); }},
    {"parallel.tensor_plan",
     [](const Run& r) { return unless(r.config.parallel.tensor > 1, because_of(r, "parallel.tensor")); }},
    {"parallel.offload",
     [](const Run& r) { return unless(r.config.parallel.zero == 3, because_of(r, "parallel.zero")); }},
    {"parallel.zero", shards},
    {"parallel.split", between_replicas},
    {"parallel.backend",
     [](const Run& r) { return unless(!r.threads, "threads of one process do not use it"); }},
    {"parallel.backend",
     [](const Run& r) {
       return unless(r.ranks > 1 || may_grow(r) || (r.served && r.config.ps.place == "dedicated"),
                     alone("there is only one rank"));
     }},
    {"ddp.hook", travels_compressed},
    {"ddp.bucket_bytes", gradients_travel},
    {"ddp.first_bucket_bytes", gradients_travel},
    {"ddp.delay_allreduce", gradients_travel},
    {"ddp.find_unused", gradients_travel},
    {"ddp.static_graph", gradients_travel},
    {"ddp.gradient_as_bucket_view", gradients_travel},
    {"ddp.reduction", not_on_their_own},
    {"ddp.broadcast_buffers", not_on_their_own},
    {"ddp.share_parameters", needs_averaging},
    {"ddp.share_parameters",
     [](const Run& r) { return unless(r.config.parallel.zero > 0, because_of(r, "parallel.zero")); }},
    {"ddp.broadcast_buffers",
     [](const Run& r) { return unless(r.has_batchnorm(), of_another_model(r, "it has no buffers")); }},
    {"elastic.enabled", may_be_elastic},
    {"elastic.min", needs_elastic},
    {"elastic.restarts", needs_elastic},
    {"elastic.batch", needs_elastic},
    {"elastic.replicas", needs_elastic_shards},
    {"average.*",
     [](const Run& r) {
       if (!r.averaging) return because_of(r, "parallel.sync", "it is for average");
       return unless(r.replicas() > 1, alone("one replica"));
     }},
    {"collab.*", [](const Run&) { return Reason("only `yoke collab` uses it", /*in_files=*/true); }},
    {"hybrid.*",
     [](const Run& r) {
       if (!r.summing) return because_of(r, "parallel.sync", "it is for hybrid");
       return unless(r.replicas() > 1, alone("one replica"));
     }},
    {"average.every",
     [](const Run& r) {
       return needs_method(r, {"local", "post_local", "diloco", "gossip", "async_gossip"});
     }},
    {"average.fragments", needs_rounds},
    {"average.overlap", needs_rounds},
    {"average.start", [](const Run& r) { return needs_method(r, {"post_local"}); }},
    {"average.outer_lr", [](const Run& r) { return needs_method(r, {"diloco"}); }},
    {"average.outer_momentum", [](const Run& r) { return needs_method(r, {"diloco"}); }},
    {"average.graph",
     [](const Run& r) {
       return needs_method(r, {"gossip", "async_gossip"});
     }},
    {"ps.*",
     [](const Run& r) {
       return unless(r.served, fmt::format("parallel.sync = \"{}\"; parameter servers need parallel.sync = "
                                           "\"ps\"",
                                           r.config.parallel.sync));
     }},
    {"sandblaster.*",
     [](const Run& r) { return unless(r.served, because_of(r, "parallel.sync", "it is for ps")); }},
    {"sandblaster.*", [](const Run& r) { return needs_optimizer(r, {"lbfgs"}); }},
    {"ps.policy", follows_a_rule},
    {"ps.k", follows_a_rule},
    {"ps.max_delay", follows_a_rule},
    {"ps.stale_step", follows_a_rule},
    {"ps.stale_c", follows_a_rule},
    {"ps.stale_max", follows_a_rule},
    {"ps.adasync", follows_a_rule},
    {"ps.adasync_interval", follows_a_rule},
    {"ps.overlap", follows_a_rule},
    {"ps.overlap",
     [](const Run& r) {
       return unless(
           r.config.parallel.pipeline <= 1,
           because_of(r, "parallel.pipeline", "the ranks of a replica move together, between steps"));
     }},
    {"ps.overlap",
     [](const Run& r) {
       return unless(r.config.parallel.tensor <= 1,
                     because_of(r, "parallel.tensor", "the ranks of a replica move together, between steps"));
     }},
    {"ps.n_push", follows_a_rule},
    {"ps.n_fetch", follows_a_rule},
    {"ps.warm_start", follows_a_rule},
    {"ps.log_updates", follows_a_rule},
    {"ps.k",
     [](const Run& r) -> Reason {
       if (r.rule.k == plan::RuleTraits::kGiven) return kWorks;
       return of_another_rule(r, "k_sync, k_batch_sync, k_async and k_batch_async");
     }},
    {"ps.max_delay",
     [](const Run& r) -> Reason {
       return r.rule.gated ? kWorks : of_another_rule(r, "bounded_delay and ssp");
     }},
    {"ps.stale_step",
     [](const Run& r) -> Reason {
       if (!r.rule.cancels || r.config.ps.stale_step != "inverse") return kWorks;
       return of_another_rule(r, "rules with stale gradients");
     }},
    {"ps.stale_c",
     [](const Run& r) {
       return unless(r.config.ps.stale_step == "distance",
                     because_of(r, "ps.stale_step", "it is for distance"));
     }},
    {"ps.stale_max",
     [](const Run& r) {
       return unless(r.config.ps.stale_step == "distance",
                     because_of(r, "ps.stale_step", "it is for distance"));
     }},
    {"ps.adasync_interval",
     [](const Run& r) { return unless(r.config.ps.adasync, because_of(r, "ps.adasync")); }},
    {"ps.warm_start", [](const Run& r) { return unless(r.ranks > 1, alone("there is only one worker")); }},
    {"ps.on_worker_loss",
     [](const Run& r) { return unless(r.ranks > 1, alone("the only worker cannot be replaced")); }},
    {"ps.on_server_loss",
     [](const Run& r) {
       if (r.config.ps.place != "dedicated")
         return because_of(r, "ps.place", "a server is lost with its worker");
       return unless(r.config.ps.replicas == 0, because_of(r, "ps.replicas", "others take over"));
     }},
    {"ps.restarts",
     [](const Run& r) {
       const ps::PsOptions& ps = r.config.ps;
       const bool job_restarts = ps.on_server_loss != "stop" && ps.replicas == 0 && ps.place == "dedicated";
       return unless(ps.on_worker_loss == "restart" || job_restarts,
                     because_of(r, "ps.on_worker_loss", "it is for restart"));
     }},
    {"ps.sparse", has_sparse_samples},
    {"ps.key_cache", pushes_rows},
    {"ps.fixed_point", pushes_rows},
    {"ps.compress", pushes_rows},
    {"ps.significant", pushes_rows},
    {"ps.random_skip", pushes_rows},
    {"ps.kkt", judges_zeros},
    {"slowdown.link",
     [](const Run& r) {
       return unless(r.served, fmt::format("parallel.sync = \"{}\"; parameter servers need parallel.sync = "
                                           "\"ps\"",
                                           r.config.parallel.sync));
     }},
    {"slowdown.workers",
     [](const Run& r) {
       return unless(r.config.slowdown.law != "none" || r.config.slowdown.link != "none",
                     because_of(r, "slowdown.law"));
     }},
    {"slowdown.seed",
     [](const Run& r) {
       auto draws = [](const std::string& law) {
         return !is_one_of(law.substr(0, law.find(':')), {"none", "const"});
       };
       return unless(draws(r.config.slowdown.law) || draws(r.config.slowdown.link),
                     because_of(r, "slowdown.law", "it draws no random numbers"));
     }},
    {"pipeline.*",
     [](const Run& r) { return unless(!r.partitioned, "parallel.partition runs each batch in one pass"); }},
    {"pipeline.*",
     [](const Run& r) {
       return unless(r.staged, "parallel.pipeline = 1; set parallel.pipeline or parallel.plan");
     }},
    {"pipeline.stages",
     [](const Run& r) { return unless(r.config.parallel.plan.empty(), "parallel.plan sets the stages"); }},
    {"pipeline.chunks",
     [](const Run& r) {
       return unless(r.config.pipeline.schedule == "interleaved",
                     because_of(r, "pipeline.schedule", "it is for interleaved"));
     }},
    {"pipeline.vertical_sync",
     [](const Run& r) {
       return unless(r.config.pipeline.schedule == "pipedream",
                     because_of(r, "pipeline.schedule", "it is for pipedream"));
     }},
    {"checkpoint.keep",
     [](const Run& r) {
       return unless(r.config.checkpoint.every_steps > 0, because_of(r, "checkpoint.every_steps"));
     }},
    {"checkpoint.background",
     [](const Run& r) {
       return unless(r.config.checkpoint.every_steps > 0, because_of(r, "checkpoint.every_steps"));
     }},
};

// A value that switches something off.
bool is_off(const config::Value& value) {
  std::string text = config::to_toml(value);
  return is_one_of(text, {"false", "0", "0.0", "[]", "\"\"", "\"none\"", "\"auto\"", "\"equal\"", "\"0\""});
}

// A built-in value that was typed is intended, unless it switches something off or undoes what the file says.
bool asks_for_something(const config::Entry& entry) {
  if (entry.origin == "built-in") return false;
  if (!entry.is_initial()) return true;
  return entry.is_typed() && !entry.corrects && !is_off(entry.initial);
}

Reason reason_of(const Run& run, const std::string& key) {
  for (const KeyRow& row : kKeyRows) {
    if (!key_matches(row.key, key)) continue;
    Reason reason = row.check(run);
    if (!reason.why.empty()) return reason;
  }
  return kWorks;
}

std::string shown(const IdleKey& idle) {
  return fmt::format("{} = {} ({}): {}", idle.entry->key(), config::to_toml(idle.entry->field.get()),
                     idle.entry->origin, idle.why);
}

}  // namespace

std::vector<IdleKey> idle_keys(const Configuration& configuration, int ranks) {
  Run run(configuration, ranks);
  std::vector<IdleKey> idle;
  for (const config::Entry& entry : configuration.schema.entries()) {
    if (!asks_for_something(entry)) continue;
    Reason reason = reason_of(run, entry.key());
    if (reason.why.empty()) continue;
    bool tolerated = reason.told || (reason.file_may && !entry.is_typed());
    idle.push_back({&entry, std::move(reason.why), tolerated});
  }
  return idle;
}

void refuse_idle_keys(const Configuration& configuration, int ranks, bool tell) {
  std::vector<std::string> refused;
  std::vector<IdleKey> all = idle_keys(configuration, ranks);
  for (const IdleKey& idle : all)
    if (!idle.tolerated) refused.push_back(shown(idle));
  if (!refused.empty())
    throw ConfigError("no effect in this run: {}. Remove {}, or set the built-in value (yoke config keys).",
                      join(refused, ". "), refused.size() == 1 ? "it" : "them");
  for (const IdleKey& idle : all)
    if (tell) log::warn("no effect in this run: {}", shown(idle));
}

void reset_idle_keys(Configuration& configuration) {
  constexpr int kMany = 1 << 20;  // no key is idle for lack of ranks
  for (const IdleKey& idle : idle_keys(configuration, kMany))
    if (idle.tolerated) configuration.schema.reset(idle.entry->key());
  if (!missing_test_files(configuration.values).empty()) configuration.values.train.loop.evaluate = false;
}

std::vector<std::string> missing_test_files(const RunConfig& config) {
  if (!config.train.loop.evaluate) return {};
  std::vector<std::string> looked;
  std::error_code ignored;
  for (const std::filesystem::path& path : data::test_files_of(config.data.name, config.data.dir)) {
    if (std::filesystem::is_regular_file(path, ignored)) return {};
    looked.push_back(path.string());
  }
  return looked;
}

}  // namespace yoke::cli
