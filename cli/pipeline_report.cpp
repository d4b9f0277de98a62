#include "cli/pipeline_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
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

// Streams are compared pass by pass, once the simulated pipeline is as full as the real one.
constexpr int kWarmUpRounds = 4;

// What is compared: for schedules with a flush the last complete minibatch, for streams all passes, counted
// from a few minibatches before the first.
PipelineEvents compared_part(const PipelineEvents& events, plan::ScheduleKind kind) {
  if (flushes(kind)) {
    const int last = metrics::last_minibatch(events);
    if (last < 0)
      throw ConfigError("there is no minibatch with all {} micro-batches on all {} stages.",
                        events.microbatches, events.stages);
    return metrics::minibatch_of(events, last);
  }
  PipelineEvents out = events;
  int lowest = std::numeric_limits<int>::max();
  for (const PipelineEvent& event : out.events) lowest = std::min(lowest, event.microbatch);
  int devices = 0;
  for (int stage = 0; stage < events.stages; ++stage)
    devices += events.replicas.empty() ? 1 : events.replicas[static_cast<size_t>(stage)];
  const int warm_up = kWarmUpRounds * (devices / events.microbatches + 1);
  const int skipped = std::max(0, lowest / events.microbatches - warm_up) * events.microbatches;
  for (PipelineEvent& event : out.events) event.microbatch -= skipped;
  return out;
}

// Only the passes of the simulated timeline that were measured, from the first of them.
metrics::Timeline same_passes(metrics::Timeline timeline, const PipelineEvents& events,
                              const plan::Schedule& schedule) {
  std::set<std::tuple<int, int, SpanKind, int>> measured;
  for (const PipelineEvent& event : events.events)
    measured.insert({event.stage, event.chunk, event.kind, event.microbatch});
  double first = std::numeric_limits<double>::infinity(), last = 0;
  std::erase_if(timeline.spans, [&](const metrics::TimelineSpan& span) {
    const int stage = schedule.workers[static_cast<size_t>(span.row)].stage;
    return metrics::is_pass(span.kind) && measured.count({stage, span.chunk, span.kind, span.number}) == 0;
  });
  for (const metrics::TimelineSpan& span : timeline.spans) {
    if (!metrics::is_pass(span.kind)) continue;
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  std::erase_if(timeline.spans, [&](const auto& span) { return span.end <= first || span.start >= last; });
  for (metrics::TimelineSpan& span : timeline.spans) {
    span.start -= first;
    span.end -= first;
  }
  timeline.makespan = timeline.spans.empty() ? 0 : last - first;
  return timeline;
}

// Seconds that a device spends on one micro-batch: the sum of the means of its chunks.
std::vector<double> mean_seconds(const PipelineEvents& events, SpanKind kind) {
  std::map<std::pair<int, int>, std::pair<double, int64_t>> sums;  // of each stage and chunk
  for (const PipelineEvent& event : events.events) {
    if (event.kind != kind) continue;
    auto& [seconds, count] = sums[{event.stage, event.chunk}];
    seconds += event.end - event.start;
    ++count;
  }
  std::vector<double> means(static_cast<size_t>(events.stages));
  for (const auto& [place, sum] : sums)
    means[static_cast<size_t>(place.first)] += sum.first / static_cast<double>(sum.second);
  return means;
}

// If all ranks of a stage have every micro-batch, they belong to as many parallel pipelines.
std::map<int, int> pipeline_of_ranks(const PipelineEvents& events) {
  std::map<int, std::set<int>> ranks;  // of each stage
  for (const PipelineEvent& event : events.events) ranks[event.stage].insert(event.rank);
  std::map<int, int> pipelines;
  for (const auto& [stage, members] : ranks) {
    int number = 0;
    for (int rank : members) pipelines[rank] = events.replicas.empty() ? number++ : 0;
  }
  return pipelines;
}

// One way over the boundary behind each stage: the delay of the pass that follows immediately.
std::vector<double> shortest_gaps(const PipelineEvents& events) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::map<int, int> pipelines = pipeline_of_ranks(events);
  std::map<std::tuple<int, SpanKind, int, int>, std::pair<double, double>>
      passes;  // by place and micro-batch
  for (const PipelineEvent& event : events.events)
    passes[{pipelines[event.rank], event.kind, event.chunk * events.stages + event.stage, event.microbatch}] =
        {event.start, event.end};
  std::vector<double> gaps(static_cast<size_t>(events.stages), kNone);
  for (const auto& [key, times] : passes) {
    auto [pipeline, kind, place, microbatch] = key;
    if (kind != SpanKind::kForward && kind != SpanKind::kBackward) continue;
    const int before = kind == SpanKind::kForward ? place - 1 : place + 1;
    auto source = passes.find({pipeline, kind, before, microbatch});
    if (source == passes.end()) continue;
    double& gap = gaps[static_cast<size_t>(std::min(place, before) % events.stages)];
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
  // After a flush nothing waits for the update; in a stream the passes after it do.
  if (!flushes(kind)) costs.sync = mean_seconds(events, SpanKind::kUpdate);
  costs.sync_overlaps = false;
  return costs;
}

std::string title_of(const plan::ScheduleRequest& request, const PipelineEvents& events) {
  std::set<int> microbatches;
  for (const PipelineEvent& event : events.events)
    if (metrics::is_pass(event.kind)) microbatches.insert(event.microbatch);
  std::string text = fmt::format("{}, {} stages, {} micro-batches", plan::to_string(request.kind),
                                 request.stages, microbatches.size());
  return request.chunks > 1 ? text + fmt::format(", {} chunks per device", request.chunks) : text;
}

}  // namespace

report::PipelineComparison compare_pipeline(const PipelineEvents& events) {
  plan::ScheduleRequest request;
  request.kind = plan::parse_schedule_kind(events.schedule);
  PipelineEvents part = compared_part(events, request.kind);
  int highest = 0;
  for (const PipelineEvent& event : part.events) highest = std::max(highest, event.microbatch);
  request.stages = events.stages;
  request.microbatches = events.microbatches;
  // A stream continues after what was measured.
  request.minibatches = flushes(request.kind) ? 1 : highest / events.microbatches + 1 + kWarmUpRounds;
  request.chunks = events.chunks;
  request.replicas = events.replicas;
  plan::Schedule schedule = plan::make_schedule(request);
  sim::PipelineRun run = sim::simulate_pipeline(schedule, costs_of(part, request.kind));
  report::PipelineComparison comparison;
  comparison.title = title_of(request, part);
  comparison.measured = metrics::timeline_of(part);
  comparison.measured.name = "measured";
  comparison.simulated = same_passes(sim::timeline_of(schedule, run), part, schedule);
  comparison.simulated.name = "simulated";
  return comparison;
}

RunReport write_run_report(const std::filesystem::path& run, const std::filesystem::path& output) {
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
  return {folder.pipeline, folder.notes};
}

}  // namespace yoke::cli
