#include "yoke/parallel/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "yoke/base/error.h"
#include "yoke/parallel/placement/stage/layout.h"
#include "yoke/parallel/registry.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::parallel {
namespace {

[[noreturn]] void refuse(const std::string& setting, const std::string& why) {
  throw ConfigError(
      "elastic.enabled = true cannot be combined with {}: {}. Remove one of the two; elastic jobs have "
      "parallel.sync = \"allreduce\", with any parallel.zero or with parallel.pipeline.",
      setting, why);
}

void check_stages(const Choices& choices) {
  if (!choices.parallel.plan.empty())
    refuse("parallel.plan",
           "it gives stages to a fixed number of ranks. Set parallel.pipeline, whose stages are cut anew");
  if (choices.parallel.zero > 0)
    refuse(fmt::format("parallel.pipeline and parallel.zero = {}", choices.parallel.zero),
           "the shards of a stage are not copied. Set parallel.zero = 0");
  if (!plan::flushes(plan::parse_schedule_kind(choices.pipeline.schedule)))
    refuse(fmt::format("pipeline.schedule = \"{}\"", choices.pipeline.schedule),
           "batches are in flight between two steps, so no step is complete on all stages. Use 1f1b");
}

}  // namespace

void check_elastic(const Choices& choices, const std::string& optimizer, bool gpu) {
  for (const Row& row : choose(choices).rows) {
    static constexpr std::array kElastic = {"whole",   "gathered", "one_pass", "all_reduce",
                                            "sharded", "stage",    "pipeline"};
    if (std::ranges::find(kElastic, row.name) != kElastic.end()) continue;
    refuse(row.setting, row.name == "threads"  ? "its replicas share one process"
                        : row.name == "hybrid" ? "the shares of the ranks are fixed when the job starts"
                                               : "the state of a lost rank would be lost with it");
  }
  if (choose(choices).has("stage")) check_stages(choices);
  const ParallelOptions& parallel = choices.parallel;
  const bool nccl = gpu && parallel.backend == "auto";
  if (parallel.backend == "mpi" || parallel.backend == "nccl" || nccl)
    refuse(nccl ? "NCCL, the backend of GPUs" : fmt::format("parallel.backend = \"{}\"", parallel.backend),
           "it cannot form a second group after a rank is lost; set parallel.backend = \"tcp\" or \"shm\"");
  if (parallel.split != "equal")
    refuse(fmt::format("parallel.split = \"{}\"", parallel.split), "shares are given by rank");
  if (optimizer == "lbfgs")
    refuse("train.optimizer = \"lbfgs\"", "its line search communicates between updates of the parameters");
}

bool divides_state(const Choices& choices) {
  return choices.parallel.zero > 0 || choose(choices).has("stage");
}

Choices fit_to_ranks(const Choices& asked, int64_t batch_size, int ranks) {
  Choices fitted = asked;
  if (!choose(asked).has("stage")) return fitted;
  const int64_t all = asked.parallel.pipeline, stages = std::min<int64_t>(all, ranks);
  int64_t replicas = ranks / stages;
  if (asked.parallel.data > 0) replicas = std::min(replicas, asked.parallel.data);
  fitted.parallel.pipeline = stages;
  fitted.parallel.data = replicas;
  fitted.spares = static_cast<int>(ranks - stages * replicas);
  fitted.pipeline.microbatches = micro_batches(asked.pipeline, static_cast<int>(all), batch_size);
  if (stages < all) fitted.pipeline.stages.clear();
  return fitted;
}

void check_elastic_start(const Choices& asked, int ranks) {
  if (!choose(asked).has("stage")) return;
  const int64_t needed = asked.parallel.pipeline * std::max<int64_t>(1, asked.parallel.data);
  if (ranks < needed)
    throw ConfigError(
        "parallel.pipeline = {}{}: {} rank{} were started. Next: start {} or more (--nproc); those left over "
        "are spares.",
        asked.parallel.pipeline,
        asked.parallel.data > 0 ? fmt::format(", parallel.data = {}", asked.parallel.data) : "", ranks,
        ranks == 1 ? "" : "s", needed);
}

}  // namespace yoke::parallel
