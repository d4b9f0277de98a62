// Output of a training run: its folder, its summary, its last lines.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/worker.h"
#include "yoke/metrics/summary.h"
#include "yoke/metrics/trace.h"

namespace yoke::cli {

class RunFolder {
 public:
  // Writes config.toml into the folder, which exists (find_resume). Throws ConfigError.
  RunFolder(std::filesystem::path path, const Configuration& configuration, const CommandLine& line);

  // `recent`: as for metrics::CatchUp.
  void attach_sinks(engine::Engine& engine, std::vector<metrics::Record> recent);
  metrics::RunInfo run_info(const models::Model& model, const engine::LoopPlan& plan,
                            int64_t first_step) const;
  // A run that only had an evaluation left keeps the speed of the previous one.
  metrics::Summary summarise(const engine::Outcome& outcome, const engine::LoopPlan& plan,
                             const engine::Worker& worker, const std::optional<metrics::Summary>& kept,
                             std::optional<int64_t> resumed_from) const;
  // Merges the timelines of all ranks and logs the straggler, if there is one.
  void join_traces() const;
  // Writes summary.json, the strategy's reports, and report.html.
  void finish(const metrics::Summary& summary, const parallel::RunEnd& end) const;

 private:
  // FLOPs, and what the whole training takes.
  void put_compute(metrics::Summary& summary, const engine::Outcome& outcome, const engine::LoopPlan& plan,
                   const engine::Worker& worker) const;

  std::filesystem::path path_;
  const RunConfig& config_;
  const CommandLine& line_;
  bool epochs_given_;
  double started_;
};

// Records a timeline of this rank in OUT/trace/. Its time starts now: call it on all ranks after they have
// joined.
void attach_trace(engine::Engine& engine, const std::filesystem::path& out, int rank, int ranks);

// Finishes the folder and merges the timelines. Throws CheckpointError if the newest state could not be
// saved, and CommError for an error after the last step, once records are written; it is reported to the
// other ranks.
void finish_run(const RunFolder& folder, const metrics::Summary& summary, const parallel::RunEnd& end,
                checkpoint::Writer& writer, parallel::Strategy& strategy);

// Prints the run's results to stdout: JSON, or a few lines.
void print_summary(const CommandLine& line, const metrics::Summary& summary, const RunConfig& config);

// The same at the end of a run; after a stop signal, how to resume. `code`: the exit code.
void print_end(const CommandLine& line, const metrics::Summary& summary, const RunConfig& config, int code,
               int64_t total_steps);

}  // namespace yoke::cli
