#include "yoke/sim/pipeline_plan.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/plan/pipeline/cost_model.h"

namespace yoke::sim {
namespace {

// Bandwidth of the innermost level whose one component holds devices first to last.
double bandwidth_of(const std::vector<plan::Level>& levels, int64_t first, int64_t last) {
  int64_t size = 1;
  for (const plan::Level& level : levels) {
    size *= level.count;
    if (first / size == last / size) return level.bandwidth;
  }
  return levels.back().bandwidth;
}

}  // namespace

plan::ScheduleRequest request_of(const plan::PipelinePlan& plan) {
  plan::ScheduleRequest request;
  request.kind = plan::ScheduleKind::kPipedream;
  request.stages = static_cast<int>(plan.stages.size());
  for (const plan::PipelineStage& stage : plan.stages) request.replicas.push_back(stage.replicas);
  return request;
}

PipelineCosts costs_of(const plan::PipelinePlan& plan) {
  PipelineCosts costs;
  costs.forward.clear();
  costs.backward.clear();
  costs.transfer.clear();
  costs.sync.clear();
  costs.sync_overlaps = plan.overlaps;
  for (const plan::PipelineStage& stage : plan.stages) {
    costs.forward.push_back(stage.forward_seconds);
    costs.backward.push_back(std::max(0.0, stage.compute_seconds - stage.forward_seconds));
    costs.transfer.push_back(stage.transfer_seconds / 2);
    costs.sync.push_back(stage.sync_seconds);
  }
  return costs;
}

double bottleneck_of(const plan::PipelinePlan& plan) {
  const plan::CostModel& model = plan::cost_model(plan.cost_model);
  double seconds = 0;
  for (const plan::PipelineStage& stage : plan.stages)
    seconds = std::max({seconds, stage.transfer_seconds,
                        model.stage_seconds(stage.compute_seconds, stage.sync_seconds, stage.replicas)});
  return seconds;
}

plan::PipelinePlan on_levels(plan::PipelinePlan plan, const std::vector<plan::Level>& levels) {
  const plan::CostModel& model = plan::cost_model(plan.cost_model);
  int64_t devices = 0;
  for (const plan::PipelineStage& stage : plan.stages) devices += stage.replicas;
  if (devices > plan::device_count(levels))
    throw ConfigError("the plan needs {} devices; the cluster has {}.", devices, plan::device_count(levels));
  int64_t first = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    plan::PipelineStage& stage = plan.stages[i];
    int64_t last = first + stage.replicas - 1;
    stage.sync_seconds =
        model.sync_seconds(stage.replicas, stage.weight_bytes, bandwidth_of(levels, first, last));
    bool has_next = i + 1 < plan.stages.size();
    int64_t end = has_next ? last + plan.stages[i + 1].replicas : last;
    stage.transfer_seconds =
        has_next && plan.activation_cost ? 2 * stage.output_bytes / bandwidth_of(levels, first, end) : 0;
    first = last + 1;
  }
  plan.levels = levels;
  return plan;
}

}  // namespace yoke::sim
