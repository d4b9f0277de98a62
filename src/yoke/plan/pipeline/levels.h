// The hierarchy of devices a plan is made for: devices in a machine, machines in a rack, and so on.
#pragma once

#include <string>
#include <vector>

#include "yoke/cluster/topology/topology.h"

namespace yoke::plan {

// `count` components of the level below (devices at the innermost) connected with `bandwidth` bytes per
// second.
struct Level {
  int count = 1;
  double bandwidth = 0;
  bool operator==(const Level&) const = default;
};

int device_count(const std::vector<Level>& levels);

// "4@12GB/s,4@1.25GB/s": innermost first. Throws ConfigError naming the part and what is accepted.
std::vector<Level> parse_levels(const std::string& text);
std::string to_string(const std::vector<Level>& levels);

// Throws ConfigError: no level, counts below 1, more than a million devices, bandwidths <= 0.
void validate(const std::vector<Level>& levels);

// The devices of a machine, then the machines. A level's bandwidth is that of the narrowest path between two
// of its devices. Throws ConfigError if machines have different numbers of devices.
std::vector<Level> levels_of(const cluster::Topology& topology);

// All devices as one level, with the bandwidth of the narrowest path between any two.
std::vector<Level> one_level_of(const cluster::Topology& topology);

}  // namespace yoke::plan
