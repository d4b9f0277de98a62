#include <fmt/core.h>

#include "yoke/sim/pipeline.h"

namespace yoke::sim {
namespace {

const char* name_of(plan::ScheduleOp op) {
  switch (op) {
    case plan::ScheduleOp::kForward:
      return "forward";
    case plan::ScheduleOp::kBackward:
      return "backward";
    case plan::ScheduleOp::kWeight:
      return "weight gradient";
    default:
      return "update";
  }
}

}  // namespace

std::string pipeline_trace(const plan::Schedule& schedule, const PipelineRun& run) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const plan::ScheduleWorker& worker : schedule.workers) {
    if (worker.replica == 0)
      out += fmt::format(
          "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"stage {}\"}}}},\n",
          worker.stage, worker.stage);
    out += fmt::format(
        "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"replica "
        "{}\"}}}},\n",
        worker.stage, worker.replica, worker.replica);
  }
  for (const PipelineSpan& span : run.spans) {
    const plan::ScheduleWorker& worker = schedule.workers[static_cast<size_t>(span.worker)];
    out += fmt::format(
        "{{\"ph\":\"X\",\"name\":\"{} {}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{:.6f},\"dur\":{:.6f},"
        "\"args\":{{\"microbatch\":{},\"chunk\":{},\"version\":{}}}}},\n",
        name_of(span.op), span.op == plan::ScheduleOp::kUpdate ? span.version : span.microbatch,
        name_of(span.op), worker.stage, worker.replica, span.start * 1e6, (span.end - span.start) * 1e6,
        span.microbatch, span.chunk, span.version);
  }
  if (out[out.size() - 2] == ',') out.erase(out.size() - 2, 1);
  return out + "]}\n";
}

}  // namespace yoke::sim
