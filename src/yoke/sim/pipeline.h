// Pipeline schedules on a virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/metrics/timeline.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::sim {

// Cost of one micro-batch, by stage. Vectors with one entry apply to all stages.
struct PipelineCosts {
  std::vector<double> forward = {1};
  std::vector<double> backward = {2};        // total; its input part is backward - weight_backward
  std::vector<double> weight_backward = {};  // empty: half of the backward. Only if the schedule splits it
  std::vector<double> transfer = {0};        // one way over the boundary behind the stage
  std::vector<double> sync = {0};            // per update
  bool sync_overlaps = true;                 // passes continue meanwhile, with at most two gradients
  // If set, the duration of each pass instead of the three above: for example as measured in a real run.
  std::function<double(const plan::ScheduleAction& pass, int worker)> pass_seconds{};
};

struct PipelineSpan {
  int worker = 0;
  plan::ScheduleOp op = plan::ScheduleOp::kForward;  // passes and updates
  int microbatch = 0;
  int chunk = 0;
  int version = 0;
  double start = 0;
  double end = 0;
};

struct PipelineRun {
  double makespan = 0;
  std::vector<double> busy;         // per worker: passes only
  std::vector<PipelineSpan> spans;  // by worker, in order
  int64_t events = 0;               // actions executed
  // Fraction of idle time over all workers until the last one is done.
  double bubble_fraction() const;
};

// Executes the lists: a worker runs one pass at a time; a message leaves when its sender is done and the
// sender's link is free, and arrives a transfer later; an update starts when all replicas of the stage have
// reached it. Throws ConfigError for costs that are negative, not finite or do not match the number of
// stages, and for a deadlock.
PipelineRun simulate_pipeline(const plan::Schedule& schedule, const PipelineCosts& costs);

// The run as a timeline, for report::timeline_svg(): passes, and updates that take time.
metrics::Timeline timeline_of(const plan::Schedule& schedule, const PipelineRun& run);

// Trace Event Format (Perfetto, chrome://tracing): one process per stage, one thread per replica.
std::string pipeline_trace(const plan::Schedule& schedule, const PipelineRun& run);

}  // namespace yoke::sim
