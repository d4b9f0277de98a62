// Rings through all workers that share no link, with maximum bandwidth.
#pragma once

#include <vector>

#include "yoke/cluster/topology/routes.h"
#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

using Ring = std::vector<int>;  // workers, each once; the last sends to the first

struct RingSet {
  std::vector<Ring> rings;
  // Every ring also runs in the opposite direction at the same time (links are full duplex).
  bool both_ways = false;
  double bandwidth = 0;  // bytes per second through each worker, over all rings
  bool exact = false;    // provably optimal among rings over direct links, or among single rings
};

// Prefers direct links between workers: the largest number of rings that share no link (exact for up to 16
// workers). If there is no such ring: the order that minimises the load of the busiest link (branch and
// bound, limited number of tries), and with several machines rotations of it that use other network
// interfaces.
RingSet best_rings(const Topology& topology, const Routes& routes);

// Bytes per second through each worker if all rings run concurrently.
double ring_bandwidth(const Routes& routes, const std::vector<Ring>& rings, bool both_ways);

}  // namespace yoke::cluster
