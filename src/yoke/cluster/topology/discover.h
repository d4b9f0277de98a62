// Discovers the hardware of this machine through sysfs.
#pragma once

#include <filesystem>

#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

// CPUs by NUMA node, NVIDIA GPUs with their PCIe links and switches, network interfaces with their speed.
// NVLinks are not in sysfs: add them in a cluster.toml. Unreadable entries are left out; there is always one
// CPU. `sysfs`: other than "/sys" in tests only.
Topology discover_topology(const std::filesystem::path& sysfs = "/sys");

}  // namespace yoke::cluster
