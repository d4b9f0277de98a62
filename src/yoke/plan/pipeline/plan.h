// A pipeline plan as plain data: which layers run where, on how many replicas, at what cost.
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
  double sync_seconds = 0;     // the replicas synchronise gradients once per `replicas` minibatches
  // Transfer over the cut behind it, both ways, per minibatch; 0: not counted.
  double transfer_seconds = 0;
  double seconds = 0;  // per minibatch: compute and sync, divided by the replicas
  double weight_bytes = 0;
  double output_bytes = 0;  // over the cut behind it, one way
  double memory_bytes = 0;  // versions x (weights + outputs of its layers), per device
  int64_t versions = 1;     // of its weights, for minibatches in flight
  std::string bound;        // "compute", "sync" or "transfer"
  std::vector<int> layers;  // antichain only
  // Unequal devices only: which ones share it (from 0, as given), and the speed of the slowest: replicas take
  // minibatches in turn and wait for it. All times are those of the slowest.
  std::vector<int> devices;
  double slowest = 1;
  bool operator==(const PipelineStage&) const = default;
};

struct PipelinePlan {
  std::string cost_model;
  std::string states = "prefix";
  bool activation_cost = true;
  bool overlaps = true;  // sync overlaps compute, as in the cost model
  std::vector<Level> levels;
  // "7-1"; with several levels "3(4)-1(2-1-1)": machines, and in parentheses their devices.
  std::string config;
  double bottleneck_seconds = 0;  // between two minibatches in the steady state
  std::vector<PipelineStage> stages;
  int64_t devices_used = 0;
  int64_t noam = 1;               // minibatches in flight per replica of the first stage
  double one_device_seconds = 0;  // on the fastest device
  double data_parallel_seconds = 0;
  double speedup_over_one = 1;
  double speedup_over_data_parallel = 1;
  bool exact = true;               // false: too many kinds of devices to try every assignment
  double communication_saved = 0;  // 1 - bytes of the plan / bytes of data parallelism, per minibatch
  bool operator==(const PipelinePlan&) const = default;
};

std::string to_json(const PipelinePlan& plan);

// Inverse of to_json(); informational fields may be missing. Throws ConfigError with file, field and what is
// accepted: no stages, stages that omit or repeat layers, numbers out of range.
PipelinePlan parse_plan(std::string_view text, const std::string& file_name);

// ceil((devices from this stage on) / replicas), as in the released runtime: the number of minibatches that
// 1F1B keeps in flight per stage. `replicas` of every stage.
std::vector<int64_t> versions_of(const std::vector<int>& replicas);

}  // namespace yoke::plan
