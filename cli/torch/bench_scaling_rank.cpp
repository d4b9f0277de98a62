// One rank of `yoke bench scaling`: measures, and writes the results for the command that started it.
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/engine/bench_scaling.h"

#include <nlohmann/json.hpp>

namespace yoke::cli {

int run_bench_scaling(const CommandLine& line) {
  Configuration configuration;
  configuration.load("", line.overrides);
  RunConfig& config = configuration.values;
  parallel::Membership member = join_job(config);
  engine::ScalingResult result =
      engine::bench_scaling(worker_options(config, member), *member.world(), line.bench_scaling.steps);
  if (member.rank() > 0) return 0;
  nlohmann::json figures = {
      {"step_seconds", {{"median", result.step_seconds_median}, {"p95", result.step_seconds_p95}}},
      {"comm_seconds", result.comm_seconds},
      {"exposed_comm_seconds", result.exposed_comm_seconds},
      {"bytes_sent", result.bytes_sent},
      {"peak_memory_bytes", result.peak_memory_bytes}};
  if (result.compute_seconds) figures["compute_seconds"] = *result.compute_seconds;
  if (result.alone) {
    figures["alone_step_seconds"] = result.alone->step_seconds;
    figures["alone_slowest_seconds"] = result.alone->slowest_seconds;
    figures["in_step_seconds"] = result.alone->in_step_seconds;
  }
  write_file_atomically(line.bench_scaling.result_file, figures.dump());
  return 0;
}

}  // namespace yoke::cli
