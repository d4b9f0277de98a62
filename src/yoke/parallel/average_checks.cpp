#include "yoke/parallel/average_checks.h"

#include "yoke/base/error.h"
#include "yoke/plan/averaging/graph.h"

namespace yoke::parallel {
namespace {

bool is_gossip(const AverageOptions& average) {
  return average.method == "gossip" || average.method == "async_gossip";
}

}  // namespace

void check_average(const Choices& choices, const std::string& precision) {
  if (choices.parallel.sync != "average") return;
  const AverageOptions& average = choices.average;
  if (average.fragments > average.every)
    throw ConfigError(
        "average.fragments = {} with average.every = {}: a step begins the round of one fragment at most. "
        "Use at most {} fragments.",
        average.fragments, average.every, average.every);
  if (average.overlap > average.every)
    throw ConfigError(
        "average.overlap = {} with average.every = {}: a round ends before the next one begins. Use 0..{}.",
        average.overlap, average.every, average.every);
  if (average.method == "diloco" && average.outer_lr == 0)
    throw ConfigError("average.outer_lr = 0: the parameters would not move. Use a value above 0, e.g. 0.7.");
  if (average.method == "diloco" && average.outer_momentum >= 1)
    throw ConfigError("average.outer_momentum = {}: it would never fade. Use a value below 1, e.g. 0.9.",
                      average.outer_momentum);
  if (choices.ddp.hook != "none" && (is_gossip(average) || average.method == "end"))
    throw ConfigError(
        "ddp.hook = \"{}\" cannot be combined with average.method = \"{}\": hooks compress what all replicas "
        "sum in a round. Use local, post_local or diloco.",
        choices.ddp.hook, average.method);
  if (precision == "fp16")
    throw ConfigError(
        "train.precision = \"fp16\" with parallel.sync = \"average\": replicas would have different loss "
        "scales. Use fp32 or bf16.");
}

void check_average_replicas(const Choices& choices, int64_t replicas) {
  if (choices.parallel.sync == "average" && is_gossip(choices.average) && replicas > 1)
    plan::mixing_graph(choices.average.graph, static_cast<int>(replicas));
}

std::string not_one_device(const Choices& choices, const optim::OptimizerOptions& optimizer,
                           int64_t replicas) {
  const AverageOptions& average = choices.average;
  if (choices.parallel.sync != "average" || replicas == 1) return "";
  if (average.method == "end") return "average.method = \"end\" averages once";
  if (average.method == "async_gossip") return "pairs average without waiting (async_gossip)";
  if (average.every > 1) return fmt::format("average.every = {}", average.every);
  if (average.overlap > 0) return fmt::format("average.overlap = {}", average.overlap);
  if (average.method == "diloco" && (average.outer_lr != 1 || average.outer_momentum != 0))
    return "the outer step is one with average.outer_lr = 1 and average.outer_momentum = 0 only";
  if (average.method == "gossip" && replicas != 2) return "neighbours only average (gossip)";
  if (choices.ddp.hook != "none") return fmt::format("ddp.hook = \"{}\"", choices.ddp.hook);
  if (optimizer.optimizer != "sgd")
    return fmt::format("train.optimizer = \"{}\" is not linear in the gradient", optimizer.optimizer);
  if (optimizer.clip_norm > 0) return "train.clip_norm clips each replica's own gradient";
  return "";
}

plan::RoundPlan rounds_of(const AverageOptions& average) {
  plan::RoundPlan plan;
  plan.every = average.every;
  plan.fragments = average.fragments;
  plan.overlap = average.overlap;
  plan.after = average.method == "post_local" ? average.start : 0;
  plan.never = average.method == "end" || average.method == "async_gossip";
  return plan;
}

}  // namespace yoke::parallel
