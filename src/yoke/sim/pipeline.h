// Pipeline schedules on a virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/metrics/timeline.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::sim {

// What one micro-batch costs, by stage. Vectors with one entry hold for all stages.
struct PipelineCosts {
  std::vector<double> forward = {1};
  std::vector<double> backward = {2};        // the whole; its input part is backward - weight_backward
  std::vector<double> weight_backward = {};  // empty: half of the backward. Only where the schedule splits it
  std::vector<double> transfer = {0};        // one way over the boundary behind the stage
  std::vector<double> sync = {0};            // of one update
  bool sync_overlaps = true;                 // passes go on meanwhile, with two gradients at most
  // Where given, how long each pass takes, instead of the three above: what a real run measured, for example.
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
  std::vector<double> busy;         // of each worker: passes only
  std::vector<PipelineSpan> spans;  // by worker, in order
  int64_t events = 0;               // actions carried out
  // Share of idle time on all workers until the last one is done.
  double bubble_fraction() const;
};

// Carries out the lists: a worker does one pass at a time; a message leaves when its sender is done and the
// sender's link is free, and arrives a transfer later; an update starts when all replicas of the stage have
// come to it. Throws ConfigError for costs that are negative, not finite or not as many as stages, and when
// workers wait for each other for ever.
PipelineRun simulate_pipeline(const plan::Schedule& schedule, const PipelineCosts& costs);

// The run as a timeline, for report::timeline_svg(): passes, and updates that take time.
metrics::Timeline timeline_of(const plan::Schedule& schedule, const PipelineRun& run);

// Trace Event Format (Perfetto, chrome://tracing): a process for each stage, a thread for each replica.
std::string pipeline_trace(const plan::Schedule& schedule, const PipelineRun& run);

}  // namespace yoke::sim
