// What a training run leaves behind: its folder, its summary, its last lines.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/worker.h"
#include "yoke/metrics/summary.h"
#include "yoke/metrics/trace.h"

namespace yoke::cli {

class RunFolder {
 public:
  // Makes the folder and writes config.toml. Throws ConfigError when it cannot be written.
  RunFolder(std::filesystem::path path, const Configuration& configuration, const CommandLine& line);

  void attach_sinks(engine::Engine& engine);
  metrics::RunInfo run_info(const models::Model& model, const engine::LoopPlan& plan,
                            int64_t first_step) const;
  metrics::Summary summarise(const engine::Outcome& outcome, const engine::LoopPlan& plan,
                             const engine::Worker& worker, std::optional<int64_t> resumed_from) const;
  // summary.json and report.html.
  void finish(const metrics::Summary& summary) const;

 private:
  std::filesystem::path path_;
  const RunConfig& config_;
  const CommandLine& line_;
  double started_;
};

// A timeline of this rank in OUT/trace/. Its time begins now: call it on all ranks after they have met.
void attach_trace(engine::Engine& engine, const std::filesystem::path& out, int rank, int ranks);

// Makes one timeline of all ranks' and says who was waited for.
void join_traces(const std::filesystem::path& out);

// The run's results on stdout: JSON, or a few lines for people.
void print_summary(const CommandLine& line, const metrics::Summary& summary, const RunConfig& config);

}  // namespace yoke::cli
