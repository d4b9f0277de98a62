// The ways to distribute unequal devices over the stages of a pipeline.
#pragma once

#include <functional>
#include <vector>

#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// Devices that share a stage, as far as the cost depends on them.
struct DeviceGroup {
  int replicas = 0;
  double slowest = 0;
  double least_memory = 0;
  auto operator<=>(const DeviceGroup&) const = default;
};

// How devices can be assigned to stages, from the last stage to the first: a graph of states, each a set of
// assigned devices. State 0: none. Edges lead to later states.
struct DeviceStates {
  struct Step {
    int to = 0;
    int group = 0;  // index into `groups`
  };
  std::vector<std::vector<Step>> steps;  // [state]
  std::vector<int> taken;                // [state]: number of assigned devices
  std::vector<DeviceGroup> groups;
  int all = 0;  // the state in which every device is assigned
};

// One state graph, and the devices (sorted) that a stage gets between two states.
struct DevicePortions {
  DeviceStates states;
  std::function<std::vector<int>(int from, int to)> devices;
};

// Exact: one graph with every subset. Otherwise several, each of contiguous subsets in some order of the
// devices. Straight pipelines assign one device per stage.
struct DeviceChoices {
  bool exact = true;
  std::vector<DevicePortions> ways;
};

// Requires options.devices.
DeviceChoices device_choices(const PlanOptions& options);

}  // namespace yoke::plan
