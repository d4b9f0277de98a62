// A pipeline plan as plain data: which layers run where, on how many replicas, and what that should cost.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/plan/pipeline/levels.h"

namespace yoke::plan {

struct PipelineStage {
  int first = 0;  // layers first to last of the profile (of its states with `antichain`)
  int last = 0;
  int replicas = 1;            // devices that share it, over all levels
  double forward_seconds = 0;  // of one minibatch on one device
  double compute_seconds = 0;  // forward and backward
  double sync_seconds = 0;     // the replicas agree on their gradients once for every `replicas` minibatches
  double transfer_seconds =
      0;               // what crosses the cut behind it, both ways, for each minibatch; 0: not counted
  double seconds = 0;  // for each minibatch: of compute and sync, divided by the replicas
  double weight_bytes = 0;
  double output_bytes = 0;  // crossing the cut behind it, one way
  double memory_bytes = 0;  // versions x (weights + outputs of its layers), of each device
  int64_t versions = 1;     // of its weights, for minibatches that are under way
  std::string bound;        // "compute", "sync" or "transfer"
  std::vector<int> layers;  // antichain only
  // Unequal devices only: which ones share it (from 0, as given), and the speed of the slowest: replicas take
  // minibatches in turn and wait for it. All seconds are those of the slowest.
  std::vector<int> devices;
  double slowest = 1;
  bool operator==(const PipelineStage&) const = default;
};

struct PipelinePlan {
  std::string cost_model;
  std::string states = "prefix";
  bool activation_cost = true;
  bool overlaps = true;  // sync beside compute, as the cost model has it
  std::vector<Level> levels;
  std::string config;  // "7-1"; with several levels "3(4)-1(2-1-1)": machines, and in brackets their devices
  double bottleneck_seconds = 0;  // between two minibatches in the steady state
  std::vector<PipelineStage> stages;
  int64_t devices_used = 0;
  int64_t noam = 1;               // minibatches under way for each replica of the first stage
  double one_device_seconds = 0;  // on the fastest
  double data_parallel_seconds = 0;
  double speedup_over_one = 1;
  double speedup_over_data_parallel = 1;
  bool exact = true;               // false: so many kinds of devices that not every assignment was tried
  double communication_saved = 0;  // 1 - bytes of the plan / bytes of data parallelism, for each minibatch
  bool operator==(const PipelinePlan&) const = default;
};

std::string to_json(const PipelinePlan& plan);

// Reads to_json() back; what the planner adds for information may be missing. Throws ConfigError with file,
// field and what is accepted: no stages, stages that leave out or repeat layers, counts and times out of
// range.
PipelinePlan parse_plan(std::string_view text, const std::string& file_name);

// ceil((devices from this stage on) / replicas), as the released runtime counts: 1F1B keeps so many
// minibatches of each stage under way. `replicas` of every stage.
std::vector<int64_t> versions_of(const std::vector<int>& replicas);

}  // namespace yoke::plan
