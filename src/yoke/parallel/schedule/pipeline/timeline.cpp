#include "yoke/parallel/schedule/pipeline/timeline.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/clock.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::parallel {
namespace {

// Ranks of one machine share a clock; clocks of different machines differ by more than this.
constexpr double kSameClockSeconds = 1;

nlohmann::json events_here(const PipelineStage& stage, const std::vector<PipelineEvent>& events, double now) {
  nlohmann::json list = nlohmann::json::array();
  for (const PipelineEvent& one : events)
    list.push_back({to_string(one.op), one.microbatch, one.chunk, one.start, one.end});
  return {{"now", now}, {"stage", stage.place.stage}, {"events", list}};
}

}  // namespace

nlohmann::json pipeline_timeline(const PipelineStage& stage, const std::vector<PipelineEvent>& own) {
  const plan::ScheduleRequest& request = stage.layout.request;
  stage.world.barrier().wait();
  nlohmann::json ranks = gather_json(events_here(stage, own, now_seconds()), &stage.world);
  nlohmann::json events = nlohmann::json::array();
  double first = INFINITY, last = -INFINITY, busy = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    double ahead = ranks[rank]["now"].get<double>() - ranks[0]["now"].get<double>();
    if (std::abs(ahead) < kSameClockSeconds) ahead = 0;
    for (const auto& one : ranks[rank]["events"]) {
      double start = one[3].get<double>() - ahead, end = one[4].get<double>() - ahead;
      events.push_back({{"rank", rank},
                        {"stage", ranks[rank]["stage"]},
                        {"kind", one[0]},
                        {"microbatch", one[1]},
                        {"chunk", one[2]},
                        {"start", start},
                        {"end", end}});
      bool pass = one[0] != to_string(plan::ScheduleOp::kUpdate);
      if (!pass) continue;
      first = std::min(first, start);
      last = std::max(last, end);
      busy += end - start;
    }
  }
  for (auto& one : events) {
    one["start"] = one["start"].get<double>() - first;
    one["end"] = one["end"].get<double>() - first;
  }
  double makespan = events.empty() ? 0 : last - first;
  double all = makespan * static_cast<double>(ranks.size());
  return {{"schedule", plan::to_string(request.kind)},
          {"stages", request.stages},
          {"microbatches", request.microbatches},
          {"chunks", request.chunks},
          {"makespan", makespan},
          {"bubble_fraction", all > 0 ? 1 - busy / all : 0.0},
          {"events", events}};
}

}  // namespace yoke::parallel
