// Reports of runs, with what only the simulator can add.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/metrics/pipeline_events.h"
#include "yoke/report/pipeline_comparison.h"

namespace yoke::cli {

// The measured timeline, and the same passes of the same schedule simulated with the mean times of each
// stage; for transfers the shortest gap between a pass and the one that waits for it. For schedules with a
// flush, the last complete minibatch; for streams everything measured, once the pipeline is filled. Throws
// ConfigError if no minibatch is complete or the schedule is unknown.
report::PipelineComparison compare_pipeline(const metrics::PipelineEvents& events);

struct RunReport {
  std::optional<report::PipelineComparison> pipeline;
  std::vector<std::string> notes;  // what is missing, truncated or cannot be drawn; also in the report
};

// Writes the report of a run. If its folder has a pipeline.json, it is drawn beside its simulation, and
// returned.
RunReport write_run_report(const std::filesystem::path& run, const std::filesystem::path& output);

}  // namespace yoke::cli
