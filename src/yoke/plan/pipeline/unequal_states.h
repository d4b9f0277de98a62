// In which portions unequal devices can be given to the stages of a pipeline.
#pragma once

#include <functional>
#include <vector>

#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// Devices that may share a stage, as far as prices care.
struct DeviceGroup {
  int replicas = 0;
  double slowest = 0;
  double least_memory = 0;
  auto operator<=>(const DeviceGroup&) const = default;
};

// In what portions devices can be given to stages, from the last stage to the first: a graph of states, each
// the set of devices that are taken. State 0: none. Edges lead to later states.
struct DeviceStates {
  struct Step {
    int to = 0;
    int group = 0;  // of `groups`
  };
  std::vector<std::vector<Step>> steps;  // [state]
  std::vector<int> taken;                // [state]: how many devices
  std::vector<DeviceGroup> groups;
  int all = 0;  // the state in which every device is taken
};

// One set of portions, and the devices (sorted) that a stage gets between two states.
struct DevicePortions {
  DeviceStates states;
  std::function<std::vector<int>(int from, int to)> devices;
};

// Exact: one set with every portion. Otherwise several, each of what stands together in some order of the
// devices. Straight pipelines have portions of one device only.
struct DeviceChoices {
  bool exact = true;
  std::vector<DevicePortions> ways;
};

// Requires options.devices.
DeviceChoices device_choices(const PlanOptions& options);

}  // namespace yoke::plan
