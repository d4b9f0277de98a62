// Converts the tree of a plan into what a user reads: flat stages, versions, memory, comparisons.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/text.h"
#include "yoke/plan/pipeline/planner.h"

namespace yoke::plan {
namespace {

// A flattened stage: what its outer levels add to every stage inside.
struct Outer {
  int replicas = 1;
  std::vector<double>
      syncs;  // of each level outside, from the innermost outwards, in seconds of one agreement
};

class Flattener {
 public:
  explicit Flattener(const Pricing& pricing) : pricing_(pricing) {}

  void flatten(const std::vector<PlanNode>& nodes, int level, const Outer& outer, double transfer_behind) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const PlanNode& node = nodes[i];
      double sync = pricing_.sync(level, node.begin, node.end, node.replicas, i == 0);
      bool last = i + 1 == nodes.size();
      double transfer = std::max(last ? transfer_behind : 0.0, transfer_seconds(nodes, i, level, outer));
      if (node.inner.empty()) {
        add_stage(node, sync, outer, transfer);
        continue;
      }
      Outer wider = outer;
      wider.replicas *= node.replicas;
      wider.syncs.insert(wider.syncs.begin(), sync);
      replicas_.push_back(node.replicas);
      flatten(node.inner, level - 1, wider, transfer);
      replicas_.pop_back();
    }
  }

  std::vector<PipelineStage> stages;

 private:
  const CostModel& model() const { return pricing_.model(); }

  // Per minibatch: the cut behind nodes[i], or (released) the cuts on both sides of every stage but the
  // first. Each copy of the component has its own links.
  double transfer_seconds(const std::vector<PlanNode>& nodes, size_t i, int level, const Outer& outer) const {
    const Cuts& cuts = pricing_.cuts;
    double bytes = i + 1 < nodes.size() ? 2 * cuts.crossing_at(nodes[i].end) : 0;
    double links = 1;
    if (model().released_rules) {
      bytes = i == 0 ? 0 : 2 * std::max(cuts.crossing_at(nodes[i].begin), cuts.crossing_at(nodes[i].end));
      links = nodes[i].replicas;
    }
    if (!pricing_.options.activation_cost || bytes == 0) return 0;
    return with_outer(bytes / (pricing_.level(level).bandwidth * links), outer);
  }

  // Time of something that takes `seconds` in a component, with the syncs of the outer levels.
  double with_outer(double seconds, const Outer& outer) const {
    for (size_t i = 0; i < outer.syncs.size(); ++i)
      seconds = model().stage_seconds(seconds, outer.syncs[i], replicas_[replicas_.size() - 1 - i]);
    return seconds;
  }

  void add_stage(const PlanNode& node, double own_sync, const Outer& outer, double transfer) {
    const Cuts& cuts = pricing_.cuts;
    PipelineStage stage;
    stage.first = node.begin;
    stage.last = node.end - 1;
    stage.replicas = node.replicas * outer.replicas;
    stage.forward_seconds = cuts.at(cuts.forward, node.begin, node.end);
    stage.compute_seconds = cuts.seconds_of(node.begin, node.end);
    // In units of the stage's own rounds, so that compute and sync are comparable.
    double inside = node.replicas;
    stage.sync_seconds = own_sync;
    for (size_t i = 0; i < outer.syncs.size(); ++i) {
      double seconds = outer.syncs[i] * inside;
      stage.sync_seconds =
          model().overlaps ? std::max(stage.sync_seconds, seconds) : stage.sync_seconds + seconds;
      inside *= replicas_[replicas_.size() - 1 - i];
    }
    stage.seconds = model().stage_seconds(stage.compute_seconds, stage.sync_seconds, stage.replicas);
    stage.transfer_seconds = transfer;
    stage.weight_bytes = cuts.weights_of(node.begin, node.end);
    stage.output_bytes = cuts.crossing_at(node.end);
    bool sync_bound = stage.sync_seconds > stage.compute_seconds;
    stage.bound = transfer > stage.seconds ? "transfer" : sync_bound ? "sync" : "compute";
    if (!cuts.layers.empty()) stage.layers = cuts.layers_of(node.begin, node.end);
    stages.push_back(std::move(stage));
  }

  const Pricing& pricing_;
  std::vector<int> replicas_;  // of the outer levels, outermost first
};

std::string config_of(const std::vector<PlanNode>& nodes) {
  std::vector<std::string> parts;
  for (const PlanNode& node : nodes) {
    std::string inner = node.inner.empty() ? "" : "(" + config_of(node.inner) + ")";
    parts.push_back(std::to_string(node.replicas) + inner);
  }
  return join(parts, "-");
}

std::vector<PlanNode> data_parallel(const Pricing& pricing, int level) {
  PlanNode node{0, pricing.cuts.count(), pricing.level(level).count, {}};
  if (level > 0) node.inner = data_parallel(pricing, level - 1);
  return {node};
}

// Bytes sent per minibatch: rings among the replicas, activations and their gradients over cuts.
double bytes_moved(const std::vector<PipelineStage>& stages) {
  double bytes = 0;
  for (const PipelineStage& stage : stages)
    bytes += 2.0 * (stage.replicas - 1) / stage.replicas * stage.weight_bytes + 2 * stage.output_bytes;
  return bytes;
}

std::vector<PipelineStage> flat_stages(const Pricing& pricing, const std::vector<PlanNode>& nodes) {
  Flattener flattener(pricing);
  flattener.flatten(nodes, pricing.levels() - 1, {}, 0);
  return std::move(flattener.stages);
}

double bottleneck(const std::vector<PipelineStage>& stages) {
  double seconds = 0;
  for (const PipelineStage& stage : stages)
    seconds = std::max({seconds, stage.seconds, stage.transfer_seconds});
  return seconds;
}

void add_versions(const Pricing& pricing, const std::vector<PlanNode>& nodes, PipelinePlan& plan) {
  std::vector<int> replicas;
  for (const PipelineStage& stage : plan.stages) replicas.push_back(stage.replicas);
  std::vector<int64_t> versions = versions_of(replicas);
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    PipelineStage& stage = plan.stages[i];
    stage.versions = versions[i];
    stage.memory_bytes =
        static_cast<double>(versions[i]) * pricing.bytes_per_version(stage.first, stage.last + 1);
    plan.devices_used += stage.replicas;
  }
  plan.noam = versions.front();
  plan.config = config_of(nodes);
}

}  // namespace

PipelinePlan price_plan(const Cuts& cuts, const PlanOptions& options, const std::vector<PlanNode>& nodes) {
  Pricing pricing(cuts, options);
  PipelinePlan plan;
  plan.cost_model = options.model->name;
  plan.states = cuts.layers.empty() ? "prefix" : "antichain";
  plan.activation_cost = options.activation_cost;
  plan.overlaps = options.model->overlaps;
  plan.levels = options.levels;
  plan.stages = flat_stages(pricing, nodes);
  plan.bottleneck_seconds = bottleneck(plan.stages);
  add_versions(pricing, nodes, plan);
  std::vector<PipelineStage> alone = flat_stages(pricing, data_parallel(pricing, pricing.levels() - 1));
  plan.one_device_seconds = cuts.seconds.back();
  plan.data_parallel_seconds = bottleneck(alone);
  if (plan.bottleneck_seconds > 0) {
    plan.speedup_over_one = plan.one_device_seconds / plan.bottleneck_seconds;
    plan.speedup_over_data_parallel = plan.data_parallel_seconds / plan.bottleneck_seconds;
  }
  double reference = bytes_moved(alone);
  plan.communication_saved = reference > 0 ? 1 - bytes_moved(plan.stages) / reference : 0;
  return plan;
}

}  // namespace yoke::plan
