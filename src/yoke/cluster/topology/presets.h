// Topologies of well-known machines, and clusters of them.
#pragma once

#include <string>
#include <vector>

#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

struct ClusterSize {
  int machines = 1;
  double network_bandwidth = 0;     // bytes per second of each network interface; 0: that of the preset
  double network_latency = 2.5e-6;  // seconds to or from the switch
};

// Throws ConfigError that lists the presets if `name` is unknown.
Topology preset(const std::string& name, const ClusterSize& size = {});

struct PresetInfo {
  std::string name;
  std::string what;
};
std::vector<PresetInfo> presets();

}  // namespace yoke::cluster
