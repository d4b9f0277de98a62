// The two searches behind best_rings().
#pragma once

#include <vector>

#include "yoke/cluster/topology/routes.h"
#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

// The largest number of rings over direct links between workers such that each of several parallel links is
// used by one ring. Prefers the set with the largest total bandwidth. Empty: no ring exists, or more than 16
// workers. `exact`: the search was exhaustive.
std::vector<std::vector<int>> disjoint_direct_rings(const Topology& topology, bool& exact);

// The cyclic order that minimises the load of the busiest link.
std::vector<int> widest_order(const Topology& topology, const Routes& routes, bool& exact);

}  // namespace yoke::cluster
