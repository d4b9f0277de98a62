#include "cli/run_checks.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/memory.h"
#include "yoke/base/units.h"
#include "yoke/models/outline/outline.h"
#include "yoke/parallel/pipeline/layout.h"

namespace yoke::cli {
namespace {

constexpr double kIndexBytes = 8;  // a sample's place in the order of an epoch

const char* plural(int64_t count) {
  return count == 1 ? "" : "s";
}

// The model cut into stages, as the ranks would do it; costs do not matter here.
void check_cut(const RunConfig& config, parallel::PipelineOptions options, int stages, int copies,
               const std::vector<int>& replicas) {
  auto blocks = static_cast<size_t>(models::outline_of(config.model).blocks);
  parallel::make_layout(options, stages, copies, std::vector<double>(blocks, 1.0), config.data.batch_size,
                        replicas);
}

}  // namespace

void check_plan(const RunConfig& config, const plan::PipelinePlan& plan, int workers) {
  const std::string& file = config.parallel.plan;
  std::vector<int> replicas;
  parallel::PipelineOptions options = config.pipeline;
  options.stages.clear();
  for (const plan::PipelineStage& stage : plan.stages) {
    replicas.push_back(stage.replicas);
    options.stages += fmt::format("{}{}-{}", options.stages.empty() ? "" : ",", stage.first, stage.last);
  }
  int devices = std::accumulate(replicas.begin(), replicas.end(), 0);
  if (workers % devices != 0 || (config.parallel.data > 0 && config.parallel.data * devices != workers))
    throw ConfigError("parallel.plan = \"{}\": a plan of {} device{} with {} rank{}. Start --nproc {}.", file,
                      devices, plural(devices), workers, plural(workers), devices);
  auto blocks = models::outline_of(config.model).blocks;
  if (plan.stages.back().last + 1 != blocks)
    throw ConfigError(
        "parallel.plan = \"{}\": a plan of {} layers, but {} has {} blocks. Make it from a profile of this "
        "model: yoke profile.",
        file, plan.stages.back().last + 1, config.model.name, blocks);
  if (replicas.size() > 1)
    check_cut(config, options, static_cast<int>(replicas.size()), workers / devices, replicas);
}

void check_memory(const RunConfig& config) {
  if (config.train.compute.device != "cpu") return;
  auto memory = static_cast<double>(usable_memory_bytes());
  bool planned = !config.parallel.plan.empty();  // into stages that are not known here
  if (!planned) models::check_size(config.model, memory, "this machine has", config.parallel.pipeline);
  if (config.data.name == "synthetic" && static_cast<double>(config.data.samples) * kIndexBytes > memory)
    throw ConfigError(
        "data.samples = {}: their order alone takes {}; this machine has {}.", config.data.samples,
        format_bytes(static_cast<double>(config.data.samples) * kIndexBytes), format_bytes(memory));
  double batch = models::outline_of(config.model).sample_bytes * static_cast<double>(config.data.batch_size);
  if (batch > memory)
    throw ConfigError("data.batch_size = {}: the inputs of one batch take {}; this machine has {}.",
                      config.data.batch_size, format_bytes(batch), format_bytes(memory));
}

void check_workers(const RunConfig& config, int workers) {
  const parallel::ParallelOptions& parallel = config.parallel;
  int64_t stages = parallel.pipeline, data = parallel.data;
  if (parallel.sync == "threads") {
    if (workers > 1)
      throw ConfigError("parallel.sync = threads is one process, and here are {} ranks.", workers);
    return;
  }
  if (parallel.plan == "auto") return;  // made when they have met
  if (!parallel.plan.empty())
    return check_plan(config, plan::parse_plan(read_file(parallel.plan), parallel.plan), workers);
  if (stages > 1 && (workers % stages != 0 || (data > 0 && data * stages != workers)))
    throw ConfigError(
        "parallel.pipeline = {}, parallel.data = {} with {} rank{}: start pipeline x data, with --nproc {} "
        "or a launcher.",
        stages, data, workers, plural(workers), stages * std::max<int64_t>(1, data));
  if (stages == 1 && data > 0 && data != workers)
    throw ConfigError("parallel.data = {} with {} {}{}: start as many, with --nproc {} or a launcher.", data,
                      workers, parallel.sync == "ps" ? "worker" : "rank", plural(workers), data);
  if (stages > 1)
    check_cut(config, config.pipeline, static_cast<int>(stages), static_cast<int>(workers / stages), {});
}

}  // namespace yoke::cli
