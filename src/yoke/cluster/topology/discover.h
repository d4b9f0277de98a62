// What this machine is made of, as far as the kernel says.
#pragma once

#include <filesystem>

#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

// CPUs by NUMA node, NVIDIA GPUs with their PCIe links and switches, network interfaces with their speed,
// from sysfs. NVLinks are not listed there: write them into a cluster.toml. What cannot be read is left out;
// there is always one CPU. `sysfs` is "/sys" but in tests.
Topology discover_topology(const std::filesystem::path& sysfs = "/sys");

}  // namespace yoke::cluster
