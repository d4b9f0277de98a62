#include "cli/run_checks.h"

#include "yoke/base/error.h"
#include "yoke/base/memory.h"
#include "yoke/base/units.h"
#include "yoke/models/outline/outline.h"
#include "yoke/parallel/elastic.h"
#include "yoke/parallel/fit.h"

namespace yoke::cli {
namespace {

constexpr double kIndexBytes = 8;  // a sample's place in the order of an epoch

}  // namespace

void check_memory(const RunConfig& config) {
  if (config.train.compute.device != "cpu") return;
  auto memory = static_cast<double>(usable_memory_bytes());
  bool planned = !config.parallel.plan.empty() ||
                 !config.parallel.partition.empty();  // into stages that are not known here
  if (!planned) models::check_size(config.model, memory, "this machine has", config.parallel.pipeline);
  if (config.data.name == "synthetic" && static_cast<double>(config.data.samples) * kIndexBytes > memory)
    throw ConfigError(
        "data.samples = {}: the sample order alone takes {}; this machine has {}.", config.data.samples,
        format_bytes(static_cast<double>(config.data.samples) * kIndexBytes), format_bytes(memory));
  if (!models::is_built_in(config.model.name)) return;  // it would have to be built to know
  double batch = models::outline_of(config.model).sample_bytes * static_cast<double>(config.data.batch_size);
  if (batch > memory)
    throw ConfigError("data.batch_size = {}: the inputs of one batch take {}; this machine has {}.",
                      config.data.batch_size, format_bytes(batch), format_bytes(memory));
}

parallel::Choices layout_on(const RunConfig& config, int workers) {
  if (!config.elastic.enabled) return config;
  return parallel::fit_to_ranks(config, config.data.batch_size, workers);
}

void check_workers(const RunConfig& config, int workers) {
  if (config.elastic.enabled && config.elastic.min > workers)
    throw ConfigError("elastic.min = {} with {} ranks: set it to at most {}, or start more (--nproc).",
                      config.elastic.min, workers, workers);
  parallel::check_workers(layout_on(config, workers), {config.model, config.data.batch_size}, workers);
}

void check_plan(const RunConfig& config, const plan::PipelinePlan& plan, int workers) {
  parallel::check_plan(config, {config.model, config.data.batch_size}, plan, workers);
}

}  // namespace yoke::cli
