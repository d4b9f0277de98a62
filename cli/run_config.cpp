#include "cli/run_config.h"

#include <filesystem>

#include "cli/presets.h"
#include "cli/repeatable.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/data/formats/names.h"
#include "yoke/parallel/average_checks.h"
#include "yoke/parallel/elastic.h"
#include "yoke/parallel/recipe_checks.h"
#include "yoke/parallel/registry.h"
#include "yoke/plan/policies/delay_law.h"
#include "yoke/plan/policies/delay_schedule.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/ps/succession.h"

namespace yoke::cli {
namespace {

// "lenet_fashion" and "configs/lenet_fashion" are accepted for configs/lenet_fashion.toml, because users type
// them first.
[[noreturn]] void no_such_file(const std::string& file) {
  std::vector<std::string> recipes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("configs", ignored)) {
    if (entry.path().extension() == ".toml") recipes.push_back(entry.path().string());
  }
  std::string near = nearest_name(file, recipes);
  if (near.empty()) near = nearest_name("configs/" + file + ".toml", recipes);
  throw ConfigError("{}: no such configuration file. {}", file,
                    near.empty() ? "Recipes are in configs/." : "Did you mean " + near + "?");
}

void check_accumulation(const RunConfig& config) {
  const engine::LoopOptions& loop = config.train.loop;
  if (loop.accumulate_tokens == 0) return;
  if (loop.accumulate > 1)
    throw ConfigError(
        "train.accumulate = {} with train.accumulate_tokens = {}: both say how many batches are in a step. "
        "Set "
        "one of them.",
        loop.accumulate, loop.accumulate_tokens);
  if (!parallel::choose(config).sync().lockstep)
    throw ConfigError(
        "train.accumulate_tokens = {} cannot be combined with parallel.sync = \"ps\": how many workers are "
        "in an "
        "update follows from ps.policy. Set train.accumulate.",
        loop.accumulate_tokens);
}

void check_together(const RunConfig& config) {
  const TrainSection& train = config.train;
  if (train.loop.steps == 0 && train.loop.epochs == 0) {
    throw ConfigError("train.epochs = 0 and train.steps = 0: nothing to do. Set one of them.");
  }
  if (train.optimizer.nesterov && train.optimizer.momentum == 0) {
    throw ConfigError("train.nesterov = true with train.momentum = 0: Nesterov needs a momentum, e.g. 0.9.");
  }
  if (train.compute.precision == "tf32" && train.compute.device == "cpu") {
    throw ConfigError(
        "train.precision = \"tf32\" on the CPU: tf32 is a mode of NVIDIA GPUs. Use fp32 or bf16, or --device "
        "cuda.");
  }
  check_accumulation(config);
  bool stages = config.parallel.pipeline > 1 || !config.parallel.plan.empty();
  if (!config.parallel.partition.empty() && !train.compute.recompute.empty() &&
      train.compute.recompute != "none" && train.compute.recompute != "blocks") {
    throw ConfigError(
        "train.recompute = {} cannot be combined with parallel.partition, where each node is recomputed by "
        "itself. Use blocks.",
        train.compute.recompute);
  }
  if (stages && train.compute.recompute.starts_with("budget:")) {
    throw ConfigError(
        "train.recompute = {} cannot be combined with a pipeline, where memory depends on the micro-batches "
        "in flight. Use blocks or sqrt.",
        train.compute.recompute);
  }
  if (train.optimizer.optimizer == "lbfgs" && train.compute.precision == "fp16") {
    throw ConfigError(
        "train.optimizer = \"lbfgs\" with train.precision = \"fp16\": its line search cannot skip an "
        "overflow. Use fp32 or bf16.");
  }
  const optim::ScheduleOptions& schedule = train.schedule;
  if (train.optimizer.optimizer == "ftrl" &&
      (schedule.schedule != "constant" || schedule.warmup_steps > 0 || schedule.warmup_epochs > 0)) {
    throw ConfigError(
        "train.optimizer = \"ftrl\" needs a constant learning rate: its weights are a function of it. Set "
        "train.schedule = \"constant\", train.warmup_steps = 0 and train.warmup_epochs = 0.");
  }
}

// Keys that only apply to replicas that average their gradients.
void check_replicas(const RunConfig& config) {
  const parallel::Chosen chosen = parallel::choose(config);
  const parallel::ParallelOptions& parallel = config.parallel;
  auto refuse = [&](const std::string& key, const std::string& with) {
    throw ConfigError("{} cannot be combined with {}: it applies to data parallel training over ranks.", key,
                      with);
  };
  const bool own_pace = parallel::in_one_process(config) || !chosen.sync().lockstep;
  const std::string sync = fmt::format("parallel.sync = \"{}\"", parallel.sync);
  const std::string parts = !parallel.partition.empty()                       ? "parallel.partition"
                            : parallel.pipeline > 1 || !parallel.plan.empty() ? "a pipeline"
                                                                              : "";
  if (config.slowdown.law != "none" && chosen.sync().lockstep && (own_pace || !parts.empty()))
    refuse(fmt::format("slowdown.law = \"{}\"", config.slowdown.law), parts.empty() ? sync : parts);
  if (parallel.split != "equal" && own_pace)
    refuse(fmt::format("parallel.split = \"{}\"", parallel.split), sync);
}

void check_spares(const RunConfig& config) {
  if (!parallel::choose(config).sync().has_spares || config.train.compute.device == "cpu") return;
  throw ConfigError(
      "parallel.sync = \"hybrid\" with train.device = \"{}\": gradients are summed in host memory. Use "
      "train.device = \"cpu\", or parallel.sync = \"allreduce\".",
      config.train.compute.device);
}

// A layer's statistics need every worker in every forward and backward pass.
void check_shared_statistics(const RunConfig& config) {
  auto refuse = [](const std::string& what, const char* why) {
    throw ConfigError(
        "train.sync_batchnorm = true with parallel.sync = \"ps\" cannot be combined with {}: {}.", what, why);
  };
  if (config.ps.policy != "sync")
    refuse("ps.policy = \"" + config.ps.policy + "\"",
           "workers compute at their own pace, and a layer needs all of them at once. Use sync");
  if (config.ps.on_worker_loss != "stop")
    refuse("ps.on_worker_loss = \"" + config.ps.on_worker_loss + "\"",
           "the others would wait for the statistics of a lost worker. Use stop");
  if (config.parallel.pipeline * config.parallel.tensor > 1)
    refuse("parallel.pipeline or parallel.tensor", "ranks of different replicas are not connected");
  if (config.train.loop.non_finite == "skip")
    refuse("train.non_finite = \"skip\"", "a worker would repeat a step alone. Use stop");
  if (config.train.optimizer.optimizer == "lbfgs")
    refuse("train.optimizer = \"lbfgs\"", "workers compute different portions of a batch");
}

void check_servers(const RunConfig& config) {
  const TrainSection& train = config.train;
  plan::parse_delay_law(config.slowdown.law);
  plan::parse_link_law(config.slowdown.link);
  if (parallel::choose(config).sync().lockstep) return;
  plan::parse_delay_schedule("ps.max_delay", config.ps.max_delay);
  if (train.loop.sync_batchnorm) check_shared_statistics(config);
  if (!(config.ps.timeout > 0))
    throw ConfigError("ps.timeout = {}: expected a time above 0, such as 5m.", config.ps.timeout);
  ps::Succession(static_cast<int>(config.ps.servers), static_cast<int>(config.ps.replicas));  // throws
  plan::Rule rule = plan::parse_rule(config.ps.policy);
  bool in_step = rule == plan::Rule::kSync || plan::traits_of(rule).cancels;
  if (in_step && (config.ps.n_push > 1 || config.ps.n_fetch > 1))
    throw ConfigError(
        "ps.n_push = {}, ps.n_fetch = {} with ps.policy = \"{}\": local steps need an asynchronous rule.",
        config.ps.n_push, config.ps.n_fetch, config.ps.policy);
}

}  // namespace

Configuration::Configuration() {
  schema.section("model", values.model);
  schema.section("data", values.data);
  schema.section("train", values.train.loop);
  schema.section("train", values.train.optimizer);
  schema.section("train", values.train.schedule);
  schema.section("train", values.train.compute);
  schema.section("parallel", values.parallel);
  schema.section("ddp", values.ddp);
  schema.section("average", values.average);
  schema.section("hybrid", values.hybrid);
  schema.section("ps", values.ps);
  schema.section("sandblaster", values.sandblaster);
  schema.section("slowdown", values.slowdown);
  schema.section("pipeline", values.pipeline);
  schema.section("elastic", values.elastic);
  schema.section("collab", values.collab);
  schema.section("checkpoint", values.checkpoint);
  schema.section("out", values.out);
}

void Configuration::load(const std::string& file, const std::vector<config::Override>& overrides) {
  if (!file.empty()) {
    if (!std::filesystem::exists(file)) no_such_file(file);
    schema.read_file(file);
  }
  for (const config::Override& change : cluster::config_overrides()) schema.set(change);
  for (const config::Override& change : overrides) schema.set(change);
  apply_preset(schema, values.train.loop.preset, data::reads_pictures(values.data.name));
  check_together(values);
  check_replicas(values);
  parallel::check_optimizer(values, values.train.optimizer.optimizer);
  parallel::check_recipe(values, values.train.optimizer);
  check_servers(values);
  check_spares(values);
  parallel::check_average(values, values.train.compute.precision);
  check_deterministic(values);
  if (values.elastic.enabled)
    parallel::check_elastic(values, values.train.optimizer.optimizer, values.train.compute.device != "cpu");
}

std::string run_folder(const RunConfig& config) {
  if (!config.out.dir.empty()) return config.out.dir;
  return fmt::format("runs/{}_{}", config.model.name, config.data.name);
}

parallel::JoinRequest join_request(const RunConfig& config) {
  return {config,
          config.train.optimizer,
          run_folder(config),
          config.train.compute.device != "cpu",
          config.train.compute.deterministic,
          config.elastic.enabled,
          static_cast<int>(config.elastic.min)};
}

}  // namespace yoke::cli
