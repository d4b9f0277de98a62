#include "yoke/plan/pipeline/unequal.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/plan/at.h"
#include "yoke/plan/pipeline/planner.h"
#include "yoke/plan/pipeline/unequal_search.h"
#include "yoke/plan/pipeline/unequal_states.h"

namespace yoke::plan {
namespace {

constexpr size_t kMostUnequal = 1024;

void check(const PlanOptions& options) {
  if (options.levels.size() != 1)
    throw ConfigError(
        "devices of different speeds or memories are planned on one level: give --devices and --bandwidth.");
  if (options.devices.size() != at(options.levels[0].count))
    throw ConfigError("{} speeds or memories for {} devices: expected one for each.", options.devices.size(),
                      options.levels[0].count);
  if (options.devices.size() > kMostUnequal)
    throw ConfigError("{} devices of different speeds or memories: at most {} are planned.",
                      options.devices.size(), kMostUnequal);
  for (const PlanDevice& device : options.devices) {
    if (!(device.speed > 0) || !std::isfinite(device.speed))
      throw ConfigError("a device of speed {}: expected a number above 0; 1 is the profiled device.",
                        device.speed);
    if (!(device.memory > 0))
      throw ConfigError("a device of {} bytes of memory: expected more than 0.", device.memory);
  }
}

struct Assignment {
  double seconds = 0;
  std::vector<PlanNode> stages;
  std::vector<std::vector<int>> devices;  // of each stage
};

// Empty: there is no plan.
Assignment best_assignment(const Pricing& pricing, const DeviceChoices& choices, int stages) {
  Assignment best;
  for (const DevicePortions& way : choices.ways) {
    auto found = UnequalSearch(pricing, way.states).best(stages);
    if (!found || (!best.stages.empty() && best.seconds <= found->seconds)) continue;
    best = {found->seconds, {}, {}};
    for (const UnequalStage& stage : found->stages) {
      best.stages.push_back({stage.begin, stage.end, way.states.groups[at(stage.group)].replicas, {}});
      best.devices.push_back(way.devices(stage.from, stage.to));
    }
  }
  return best;
}

double slowest_of(const std::vector<PlanDevice>& all, const std::vector<int>& some) {
  double slowest = std::numeric_limits<double>::infinity();
  for (int device : some) slowest = std::min(slowest, all[at(device)].speed);
  return slowest;
}

// price_plan() assumes equal speeds: correct what depends on the speed.
PipelinePlan priced(const Cuts& cuts, const PlanOptions& options, const Assignment& assignment, bool exact) {
  PipelinePlan plan = price_plan(cuts, options, assignment.stages);
  const CostModel& model = *options.model;
  plan.exact = exact;
  plan.bottleneck_seconds = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    PipelineStage& stage = plan.stages[i];
    stage.devices = assignment.devices[i];
    stage.slowest = slowest_of(options.devices, stage.devices);
    stage.forward_seconds /= stage.slowest;
    stage.compute_seconds /= stage.slowest;
    stage.seconds = model.stage_seconds(stage.compute_seconds, stage.sync_seconds, stage.replicas);
    bool sync_bound = stage.sync_seconds > stage.compute_seconds;
    stage.bound = stage.transfer_seconds > stage.seconds ? "transfer" : sync_bound ? "sync" : "compute";
    plan.bottleneck_seconds = std::max({plan.bottleneck_seconds, stage.seconds, stage.transfer_seconds});
  }
  auto [slow, fast] = std::minmax_element(options.devices.begin(), options.devices.end(),
                                          [](const auto& a, const auto& b) { return a.speed < b.speed; });
  const int all = options.levels[0].count;
  plan.one_device_seconds = cuts.seconds.back() / fast->speed;
  plan.data_parallel_seconds =
      model.stage_seconds(cuts.seconds.back() / slow->speed,
                          model.sync_seconds(all, cuts.weights.back(), options.levels[0].bandwidth), all);
  if (plan.bottleneck_seconds > 0) {
    plan.speedup_over_one = plan.one_device_seconds / plan.bottleneck_seconds;
    plan.speedup_over_data_parallel = plan.data_parallel_seconds / plan.bottleneck_seconds;
  }
  return plan;
}

}  // namespace

PipelinePlan plan_unequal(const Cuts& cuts, const PlanOptions& options) {
  check(options);
  Pricing pricing(cuts, options);
  DeviceChoices choices = device_choices(options);
  Assignment best = best_assignment(pricing, choices, 0);
  if (best.stages.empty())
    throw ConfigError(
        "no plan of {} layers on these {} devices exists: it does not fit into their memory, or a straight "
        "pipeline has fewer layers than devices. Hint: --fewer-devices, or a smaller batch.",
        cuts.count(), options.devices.size());
  return priced(cuts, options, best, choices.exact);
}

std::vector<PipelinePlan> unequal_by_stages(const Cuts& cuts, const PlanOptions& options, int most) {
  check(options);
  Pricing pricing(cuts, options);
  DeviceChoices choices = device_choices(options);
  std::vector<PipelinePlan> plans;
  for (int count = 1; count <= most; ++count) {
    Assignment best = best_assignment(pricing, choices, count);
    if (!best.stages.empty()) plans.push_back(priced(cuts, options, best, choices.exact));
  }
  return plans;
}

}  // namespace yoke::plan
