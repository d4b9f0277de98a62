// Rings through all workers that share no link, as wide as they can be.
#pragma once

#include <vector>

#include "yoke/cluster/topology/routes.h"
#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

using Ring = std::vector<int>;  // workers, each once; the last sends to the first

struct RingSet {
  std::vector<Ring> rings;
  // Every ring also runs the other way round at the same time (links are full duplex).
  bool both_ways = false;
  double bandwidth = 0;  // bytes per second through each worker, all rings together
  bool exact = false;    // no wider set exists of rings over direct links, or of one ring
};

// Direct links between workers first: the largest number of rings that share no link (exact for up to 16
// workers). Where no such ring exists, the order whose busiest link is the least busy (branch and bound, cut
// off after a fixed number of tries), and for several machines rotations of it that use other network
// interfaces.
RingSet best_rings(const Topology& topology, const Routes& routes);

// Bytes per second through each worker when all rings of the set run at once.
double ring_bandwidth(const Routes& routes, const std::vector<Ring>& rings, bool both_ways);

}  // namespace yoke::cluster
