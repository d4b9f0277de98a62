#include "cli/run_config.h"

#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/plan/policies/delay_law.h"
#include "yoke/plan/policies/delay_schedule.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::cli {
namespace {

// "lenet_fashion" and "configs/lenet_fashion" for configs/lenet_fashion.toml is what people type first.
[[noreturn]] void no_such_file(const std::string& file) {
  std::vector<std::string> recipes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("configs", ignored)) {
    if (entry.path().extension() == ".toml") recipes.push_back(entry.path().string());
  }
  std::string near = nearest_name(file, recipes);
  if (near.empty()) near = nearest_name("configs/" + file + ".toml", recipes);
  throw ConfigError("{}: no such configuration file. {}", file,
                    near.empty() ? "Recipes lie in configs/." : "Did you mean " + near + "?");
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
  if (train.optimizer.optimizer == "lbfgs" && train.compute.precision == "fp16") {
    throw ConfigError(
        "train.optimizer = \"lbfgs\" with train.precision = \"fp16\": its line steps cannot skip an "
        "overflow. Use fp32 or bf16.");
  }
}

// What belongs to replicas that average their gradients, and to nothing else.
void check_replicas(const RunConfig& config) {
  const parallel::ParallelOptions& parallel = config.parallel;
  bool stages = parallel.pipeline > 1 || !parallel.plan.empty();
  auto refuse = [&](const std::string& key, const std::string& with) {
    throw ConfigError("{} does not go with {}: it is for replicas that average gradients over ranks.", key,
                      with);
  };
  std::string other = stages                         ? "a pipeline"
                      : parallel.sync == "allreduce" ? ""
                                                     : fmt::format("parallel.sync = \"{}\"", parallel.sync);
  if (other.empty()) return;
  if (config.slowdown.law != "none" && parallel.sync != "ps")
    refuse(fmt::format("slowdown.law = \"{}\"", config.slowdown.law), other);
  if (parallel.zero > 0) refuse(fmt::format("parallel.zero = {}", parallel.zero), other);
  if (parallel.split != "equal") refuse(fmt::format("parallel.split = \"{}\"", parallel.split), other);
  if (stages && parallel.sync != "allreduce")
    refuse(fmt::format("parallel.sync = \"{}\"", parallel.sync), other);
}

void check_servers(const RunConfig& config) {
  const TrainSection& train = config.train;
  plan::parse_delay_law(config.slowdown.law);
  if (config.parallel.sync != "ps") return;
  plan::parse_delay_schedule("ps.max_delay", config.ps.max_delay);
  if (train.optimizer.optimizer == "lbfgs")
    throw ConfigError("train.optimizer = \"lbfgs\": servers can do sgd, adamw and adagrad.");
  if (train.compute.precision == "fp16")
    throw ConfigError("train.precision = \"fp16\" with parallel.sync = \"ps\": use fp32 or bf16.");
  if (train.loop.sync_batchnorm)
    throw ConfigError(
        "train.sync_batchnorm = true with parallel.sync = \"ps\": workers do not talk to each other and use "
        "the statistics of their own batches. Leave it out, or leave out parallel.sync.");
  if (!(config.ps.timeout > 0))
    throw ConfigError("ps.timeout = {}: a time above 0 is wanted, such as 5m.", config.ps.timeout);
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
  schema.section("ps", values.ps);
  schema.section("slowdown", values.slowdown);
  schema.section("pipeline", values.pipeline);
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
  check_together(values);
  check_replicas(values);
  check_servers(values);
}

// Ranks count stages first, as in parallel/pipeline/layout.h.
std::string stage_role(const RunConfig& config, int rank, int ranks) {
  int64_t stages = config.parallel.pipeline;
  if (stages < 2 || !config.parallel.plan.empty() || ranks % stages != 0) return "";
  return fmt::format("pipeline stage {}", rank / (ranks / stages));
}

}  // namespace yoke::cli
