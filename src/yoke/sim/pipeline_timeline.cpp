#include <fmt/core.h>

#include <algorithm>

#include "yoke/sim/pipeline.h"

namespace yoke::sim {
namespace {

metrics::SpanKind kind_of(plan::ScheduleOp op) {
  switch (op) {
    case plan::ScheduleOp::kForward:
      return metrics::SpanKind::kForward;
    case plan::ScheduleOp::kBackward:
      return metrics::SpanKind::kBackward;
    case plan::ScheduleOp::kWeight:
      return metrics::SpanKind::kWeight;
    default:
      return metrics::SpanKind::kUpdate;
  }
}

// Whether passes differ in the weights they use.
bool uses_versions(const PipelineRun& run) {
  return std::any_of(run.spans.begin(), run.spans.end(), [](const PipelineSpan& span) {
    return span.op != plan::ScheduleOp::kUpdate && span.version > 0;
  });
}

}  // namespace

metrics::Timeline timeline_of(const plan::Schedule& schedule, const PipelineRun& run) {
  metrics::Timeline timeline;
  for (const plan::ScheduleWorker& worker : schedule.workers) {
    bool replicated = schedule.request.replicas_of(worker.stage) > 1;
    timeline.rows.push_back(replicated ? fmt::format("stage {}.{}", worker.stage, worker.replica)
                                       : fmt::format("stage {}", worker.stage));
  }
  const bool versions = uses_versions(run);
  for (const PipelineSpan& span : run.spans) {
    bool update = span.op == plan::ScheduleOp::kUpdate;
    timeline.spans.push_back({span.worker, kind_of(span.op), update ? span.version : span.microbatch,
                              span.chunk, span.start, span.end, versions && !update ? span.version : -1});
  }
  timeline.makespan = run.makespan;
  timeline.splits_backward = schedule.request.kind == plan::ScheduleKind::kZbH1;
  return timeline;
}

}  // namespace yoke::sim
