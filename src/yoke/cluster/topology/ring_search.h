// The two searches behind best_rings().
#pragma once

#include <vector>

#include "yoke/cluster/topology/routes.h"
#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

// As many rings as possible over links that join two workers, so that each of the links side by side is used
// by one ring. Of several bandwidths the set with the largest sum. Empty: there is no ring, or more than 16
// workers. `exact`: all was tried, nothing cut off.
std::vector<std::vector<int>> disjoint_direct_rings(const Topology& topology, bool& exact);

// The cyclic order whose busiest link is the least busy.
std::vector<int> widest_order(const Topology& topology, const Routes& routes, bool& exact);

}  // namespace yoke::cluster
