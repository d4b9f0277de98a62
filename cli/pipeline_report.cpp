#include "cli/pipeline_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/report/report.h"
#include "yoke/sim/pipeline.h"

namespace yoke::cli {
namespace {

using metrics::PipelineEvent;
using metrics::PipelineEvents;
using metrics::SpanKind;

constexpr int64_t kLargestFile = int64_t{1} << 30;

bool flushes(plan::ScheduleKind kind) {
  return kind != plan::ScheduleKind::kPipedream && kind != plan::ScheduleKind::k2BW;
}

// What is compared: whole minibatches only.
PipelineEvents compared_part(const PipelineEvents& events, plan::ScheduleKind kind, int last) {
  if (flushes(kind)) return metrics::minibatch_of(events, last);
  PipelineEvents out = events;
  const int64_t end = (int64_t{last} + 1) * events.microbatches;
  std::erase_if(out.events, [&](const PipelineEvent& event) { return event.microbatch >= end; });
  return out;
}

// Seconds that a device spends on one micro-batch: the mean of each of its chunks, together.
std::vector<double> mean_seconds(const PipelineEvents& events, SpanKind kind) {
  std::map<int, std::pair<double, int64_t>> sums;  // of each virtual stage
  for (const PipelineEvent& event : events.events) {
    if (event.kind != kind) continue;
    sums[event.stage].first += event.end - event.start;
    ++sums[event.stage].second;
  }
  std::vector<double> means(static_cast<size_t>(events.stages));
  for (const auto& [stage, sum] : sums)
    means[static_cast<size_t>(stage % events.stages)] += sum.first / static_cast<double>(sum.second);
  return means;
}

// One way over the boundary behind each stage: the pass that follows at once started that much later.
std::vector<double> shortest_gaps(const PipelineEvents& events) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::map<std::tuple<SpanKind, int, int>, std::pair<double, double>> passes;
  for (const PipelineEvent& event : events.events)
    passes[{event.kind, event.stage, event.microbatch}] = {event.start, event.end};
  std::vector<double> gaps(static_cast<size_t>(events.stages), kNone);
  for (const auto& [key, times] : passes) {
    auto [kind, stage, microbatch] = key;
    if (kind != SpanKind::kForward && kind != SpanKind::kBackward) continue;
    const int before = kind == SpanKind::kForward ? stage - 1 : stage + 1;
    auto source = passes.find({kind, before, microbatch});
    if (source == passes.end()) continue;
    double& gap = gaps[static_cast<size_t>(std::min(stage, before) % events.stages)];
    gap = std::min(gap, std::max(0.0, times.first - source->second.second));
  }
  std::replace(gaps.begin(), gaps.end(), kNone, 0.0);
  return gaps;
}

sim::PipelineCosts costs_of(const PipelineEvents& events, plan::ScheduleKind kind) {
  sim::PipelineCosts costs;
  costs.forward = mean_seconds(events, SpanKind::kForward);
  costs.backward = mean_seconds(events, SpanKind::kBackward);
  std::vector<double> weight = mean_seconds(events, SpanKind::kWeight);
  for (size_t i = 0; i < weight.size(); ++i) costs.backward[i] += weight[i];
  if (kind == plan::ScheduleKind::kZbH1) costs.weight_backward = weight;
  costs.transfer = shortest_gaps(events);
  costs.sync = mean_seconds(events, SpanKind::kUpdate);
  costs.sync_overlaps = false;
  return costs;
}

std::string title_of(const plan::ScheduleRequest& request) {
  std::string text = fmt::format("{}, {} stages, {} micro-batches", plan::to_string(request.kind), request.stages,
                                 request.total());
  return request.chunks > 1 ? text + fmt::format(", {} chunks a device", request.chunks) : text;
}

}  // namespace

report::PipelineComparison compare_pipeline(const PipelineEvents& events) {
  plan::ScheduleRequest request;
  request.kind = plan::parse_schedule_kind(events.schedule);
  const int last = metrics::last_minibatch(events);
  if (last < 0)
    throw ConfigError("there is no minibatch with all {} micro-batches on all {} stages.", events.microbatches,
                      events.stages);
  PipelineEvents part = compared_part(events, request.kind, last);
  request.stages = events.stages;
  request.microbatches = events.microbatches;
  request.minibatches = flushes(request.kind) ? 1 : last + 1;
  request.chunks = events.chunks;
  request.replicas = events.replicas;
  plan::Schedule schedule = plan::make_schedule(request);
  report::PipelineComparison comparison;
  comparison.title = title_of(request);
  comparison.measured = metrics::timeline_of(part);
  comparison.measured.name = "measured";
  comparison.simulated =
      sim::timeline_of(schedule, sim::simulate_pipeline(schedule, costs_of(part, request.kind)));
  comparison.simulated.name = "simulated";
  return comparison;
}

std::optional<report::PipelineComparison> write_run_report(const std::filesystem::path& run,
                                                           const std::filesystem::path& output) {
  report::RunFolder folder = report::read_run(run);
  const std::filesystem::path file = run / "pipeline.json";
  if (std::filesystem::exists(file)) {
    try {
      folder.pipeline =
          compare_pipeline(metrics::parse_pipeline_events(read_file(file, kLargestFile), file.string()));
    } catch (const ConfigError& error) {
      folder.notes.push_back(fmt::format("pipeline.json cannot be drawn: {}", error.what()));
    }
  }
  write_file_atomically(output, report::to_html(folder));
  return folder.pipeline;
}

}  // namespace yoke::cli
