// Reports of runs, with what only the simulator can add to them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/metrics/pipeline_events.h"
#include "yoke/report/pipeline_comparison.h"

namespace yoke::cli {

// The measured timeline, and the same passes of the same schedule simulated with the mean times of each
// stage; for transfers the shortest gap between a pass and the one that waits for it. Of schedules that
// flush, the last complete minibatch; of streams everything measured, in a pipeline that has filled. Throws
// ConfigError where no minibatch is complete or the schedule is not known.
report::PipelineComparison compare_pipeline(const metrics::PipelineEvents& events);

struct RunReport {
  std::optional<report::PipelineComparison> pipeline;
  std::vector<std::string> notes;  // what is missing, torn or cannot be drawn; the report says it too
};

// Writes the report of a run. Where its folder holds pipeline.json that is drawn beside its simulation, and
// comes back.
RunReport write_run_report(const std::filesystem::path& run, const std::filesystem::path& output);

}  // namespace yoke::cli
