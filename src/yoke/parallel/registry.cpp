#include "yoke/parallel/registry.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::parallel {
namespace {

bool partitioned(const Choices& c) {
  return !c.parallel.partition.empty();
}

bool staged(const Choices& c) {
  return (c.parallel.pipeline > 1 && !partitioned(c)) || !c.parallel.plan.empty();
}

// "auto" decides between both when the ranks have met; until then the job has spare ranks.
bool summed_with_spares(const Choices& c) {
  return c.parallel.sync == "hybrid" || (c.parallel.sync == "auto" && c.hybrid.servers > 0);
}

constexpr const char* kWholeModels = "replicas in one process each hold the whole model";
constexpr const char* kWholeNodes = "a node is computed whole, on one rank of its replica";
constexpr const char* kPartsPush = "parts of a graph do not push to servers. Use parallel.pipeline";
constexpr const char* kReplicasDiffer =
    "replicas differ between two rounds, and a shard of one does not fit the others";
constexpr const char* kStageVersions = "a stage averages gradients and keeps versions of its weights";
constexpr const char* kSumsReturn = "every worker gets all sums back, where a shard is enough";
constexpr const char* kSummedWhole = "spare ranks sum the gradients of replicas of the whole model";
constexpr const char* kRunsTheModel = "it evaluates the whole model several times a step";
constexpr const char* kServersUpdate = "the servers hold the optimizer's state and move the parameters";

std::vector<Row> built_in() {
  return {
      {"placement", "whole", "", "Every rank holds the whole model.", [](const Choices&) { return true; }},
      {"placement", "stage", "parallel.pipeline = P, parallel.plan",
       "A rank holds consecutive blocks of the model.", staged},
      {"placement",
       "part",
       "parallel.partition",
       "A rank holds a part of the nodes of a model that is no chain; tensors travel along the edges that "
       "the partition cuts.",
       partitioned,
       {{"stage", "a plan cuts the chain of blocks into stages. Set one of the two"},
        {"slice", kWholeNodes},
        {"gathered", kWholeNodes},
        {"servers", kPartsPush}}},
      {"placement", "slice", "parallel.tensor = T",
       "A rank holds slices of the layers; the ranks of the tensor axis compute each layer together.",
       [](const Choices& c) { return c.parallel.tensor > 1; }},
      {"placement", "gathered", "parallel.zero = 3",
       "A rank holds a shard of every parameter; blocks are gathered when they are used.",
       [](const Choices& c) { return c.parallel.zero == 3; }},
      {"schedule", "one_pass", "", "Forward and backward of a batch at once; on one GPU as a CUDA graph.",
       [](const Choices& c) { return !staged(c); }},
      {"schedule",
       "threads",
       "parallel.sync = \"threads\"",
       "Replicas in one process, on its threads or GPUs.",
       [](const Choices& c) { return c.parallel.sync == "threads"; },
       {{"stage", kWholeModels}, {"part", kWholeModels}, {"slice", kWholeModels}, {"sharded", kWholeModels}}},
      {"schedule", "pipeline", "parallel.pipeline = P, parallel.plan",
       "Micro-batches pass through the stages in the order of pipeline.schedule.", staged},
      {"sync", "all_reduce", "parallel.sync = \"allreduce\"",
       "Replicas average gradients while backward runs (buckets, [ddp] hooks).",
       [](const Choices& c) {
         const bool plain = c.parallel.sync == "allreduce" || c.parallel.sync == "auto";
         return plain && !summed_with_spares(c) && c.parallel.zero == 0;
       }},
      {"sync",
       "sharded",
       "parallel.zero",
       "Replicas average gradients; each keeps its shard of the optimizer's state (1), of the gradients (2), "
       "of "
       "the parameters (3).",
       [](const Choices& c) { return c.parallel.zero > 0; },
       {{"servers", kServersUpdate}}},
      {"sync",
       "servers",
       "parallel.sync = \"ps\"",
       "Workers push gradients (ddp.hook compresses them) to parameter servers, which update by the rule "
       "ps.policy, or by L-BFGS.",
       [](const Choices& c) { return c.parallel.sync == "ps"; },
       {},
       /*lockstep=*/false},
      {"sync",
       "average",
       "parallel.sync = \"average\"",
       "Replicas train on their own and average parameters every average.every steps, by average.method.",
       [](const Choices& c) { return c.parallel.sync == "average"; },
       {{"sharded", kReplicasDiffer}, {"stage", kStageVersions}},
       /*lockstep=*/true,
       /*replicas_differ=*/true},
      {"sync",
       "hybrid",
       "parallel.sync = \"hybrid\" or \"auto\"",
       "Replicas average gradients while backward runs; workers and spare ranks sum them, by shares that "
       "load "
       "all links equally.",
       summed_with_spares,
       {{"sharded", kSumsReturn}, {"stage", kSummedWhole}, {"part", kSummedWhole}, {"slice", kSummedWhole}},
       /*lockstep=*/true,
       /*replicas_differ=*/false,
       /*has_spares=*/true},
  };
}

std::vector<Row>& added() {
  static std::vector<Row> rows;
  return rows;
}

std::string called(const Row& row) {
  return row.setting.empty() ? row.name : row.setting;
}

// What servers do not do for workers that are replicas in parts.
void check_served_parts(const Choices& c) {
  auto refuse = [](const std::string& what, const char* why) {
    throw ConfigError(
        "parallel.sync = \"ps\" over pipelines or tensor slices cannot be combined with {}: {}.", what, why);
  };
  if (!c.parallel.plan.empty())
    refuse("parallel.plan", "a plan may replicate single stages. Set parallel.pipeline and pipeline.stages");
  if (c.ps.place != "dedicated")
    refuse("ps.place = \"" + c.ps.place + "\"",
           "a server would be lost with a part of a replica. Use dedicated");
  if (c.ps.on_worker_loss == "restart")
    refuse("ps.on_worker_loss = \"restart\"",
           "the ranks of a replica connect to each other once, when the job starts. Use continue or stop");
  if (staged(c) && !plan::flushes(plan::parse_schedule_kind(c.pipeline.schedule)))
    refuse("pipeline.schedule = \"" + c.pipeline.schedule + "\"",
           "it updates weights while micro-batches are in flight, and servers update them. Use 1f1b");
}

}  // namespace

void check_sharded_hook(const std::string& hook, int64_t zero) {
  if (zero < 2 || hook == "none" || hook == "fp16" || hook == "bf16") return;
  throw ConfigError(
      "ddp.hook = \"{}\" cannot be combined with parallel.zero = {}: it keeps what it leaves out of every "
      "gradient, in as much memory as the gradients that ZeRO {} frees. Use fp16 or bf16, or parallel.zero = "
      "1.",
      hook, zero, zero);
}

namespace {

void check_served_hook(const std::string& hook) {
  if (hook.rfind("powersgd", 0) != 0) return;
  throw ConfigError(
      "ddp.hook = \"{}\" cannot be combined with parallel.sync = \"ps\": its factors are sums over all "
      "workers, "
      "and servers hold ranges of the parameters, not matrices. Use fp16, bf16, int8, topk:F or sign.",
      hook);
}

}  // namespace

std::vector<Row> registry() {
  std::vector<Row> rows = built_in();
  rows.insert(rows.end(), added().begin(), added().end());
  return rows;
}

std::vector<std::string> sync_words() {
  std::vector<std::string> words = {"allreduce", "threads", "ps", "average", "hybrid", "auto"};
  for (const Row& row : added()) words.push_back(row.name);
  return words;
}

void add_sync(const std::string& name, const std::string& sentence) {
  std::vector<std::string> words = sync_words();
  if (std::find(words.begin(), words.end(), name) != words.end())
    throw ConfigError("parallel.sync = \"{}\" is taken; give the rule another name.", name);
  added().push_back({"sync", name, "parallel.sync = \"" + name + "\"", sentence});
}

bool Chosen::has(const std::string& name) const {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
}

const Row& Chosen::sync() const {
  for (const Row& row : rows)
    if (row.choice == "sync") return row;
  return rows.front();  // threads: one process, nothing to synchronise
}

Chosen choose(const Choices& choices) {
  Chosen chosen;
  for (const Row& row : registry()) {
    const bool asked = row.asked != nullptr ? row.asked(choices) : choices.parallel.sync == row.name;
    if (asked) chosen.rows.push_back(row);
  }
  for (const Row& row : chosen.rows)
    for (const Row::Exclusion& other : row.excludes)
      for (const Row& found : chosen.rows)
        if (found.name == other.name)
          throw ConfigError("{} cannot be combined with {}: {}.", called(row), called(found), other.why);
  check_sharded_hook(choices.ddp.hook, choices.parallel.zero);
  if (chosen.has("servers")) check_served_hook(choices.ddp.hook);
  if (chosen.has("servers") && (chosen.has("stage") || chosen.has("slice"))) check_served_parts(choices);
  return chosen;
}

void check_optimizer(const Choices& choices, const std::string& optimizer) {
  if (optimizer != "lbfgs") return;
  static constexpr std::pair<const char*, const char*> kReasons[] = {
      {"stage", kRunsTheModel},
      {"part", kRunsTheModel},
      {"slice", "its dot products need the whole gradient, and a rank has slices of it"},
      {"sharded", "its dot products need the whole gradient, and a rank has a shard of it"},
      {"threads", "it decides by the loss of one replica"},
      {"average", "it decides by the loss of all replicas, which differ"}};
  for (const Row& row : choose(choices).rows)
    for (const auto& [name, why] : kReasons)
      if (row.name == name)
        throw ConfigError("train.optimizer = \"lbfgs\" cannot be combined with {}: {}. Use sgd or adamw.",
                          called(row), why);
  if (!choose(choices).has("servers")) return;
  if (choices.ps.replicas > 0)
    throw ConfigError(
        "train.optimizer = \"lbfgs\" with parallel.sync = \"ps\" cannot be combined with ps.replicas = {}: "
        "servers keep no copies of its vectors. Set ps.replicas = 0.",
        choices.ps.replicas);
  if (choices.ps.max_servers > 0)
    throw ConfigError(
        "train.optimizer = \"lbfgs\" with parallel.sync = \"ps\" cannot be combined with ps.max_servers = "
        "{}: "
        "its vectors do not move to servers that join. Set ps.max_servers = 0.",
        choices.ps.max_servers);
  if (choices.ps.max_workers > 0)
    throw ConfigError(
        "train.optimizer = \"lbfgs\" with parallel.sync = \"ps\" cannot be combined with ps.max_workers = "
        "{}: "
        "the coordinator shares portions among the workers of the start. Set ps.max_workers = 0.",
        choices.ps.max_workers);
  if (choices.ps.on_worker_loss == "restart")
    throw ConfigError(
        "train.optimizer = \"lbfgs\" with parallel.sync = \"ps\" cannot be combined with "
        "ps.on_worker_loss = \"restart\": a worker enters when the run starts. Use continue or stop.");
}

}  // namespace yoke::parallel
