#include "yoke/cluster/topology/rings.h"

#include <algorithm>
#include <limits>

#include "yoke/cluster/topology/ring_search.h"

namespace yoke::cluster {
namespace {

constexpr double kWorthwhile = 1.001;

void add_load(const Routes& routes, const Ring& ring, bool backwards, std::vector<int>& load) {
  for (size_t i = 0; i < ring.size(); ++i) {
    int from = ring[i], to = ring[(i + 1) % ring.size()];
    if (backwards) std::swap(from, to);
    if (from == to) continue;
    for (int link : routes.links(from, to)) ++load[static_cast<size_t>(link)];
  }
}

// The order of `ring` with every machine's segment rotated by `shift`, so that another worker sends out of
// the machine.
Ring rotated_in_machines(const Routes& routes, const Ring& ring, size_t shift) {
  Ring out;
  for (size_t begin = 0; begin < ring.size();) {
    size_t end = begin;
    while (end < ring.size() && routes.machine(ring[end]) == routes.machine(ring[begin])) ++end;
    for (size_t i = 0; i < end - begin; ++i) out.push_back(ring[begin + (i + shift) % (end - begin)]);
    begin = end;
  }
  return out;
}

// Adds rotations while they increase the total bandwidth.
void use_other_interfaces(const Routes& routes, RingSet& set) {
  Ring first = set.rings.front();
  size_t in_first_machine = static_cast<size_t>(std::count_if(
      first.begin(), first.end(), [&](int w) { return routes.machine(w) == routes.machine(first[0]); }));
  if (in_first_machine == first.size()) return;
  for (size_t shift = 1; shift < in_first_machine; ++shift) {
    std::vector<Ring> more = set.rings;
    more.push_back(rotated_in_machines(routes, first, shift));
    double bandwidth = ring_bandwidth(routes, more, set.both_ways);
    if (bandwidth < set.bandwidth * kWorthwhile) continue;
    set.rings = std::move(more);
    set.bandwidth = bandwidth;
    set.exact = false;
  }
}

}  // namespace

double ring_bandwidth(const Routes& routes, const std::vector<Ring>& rings, bool both_ways) {
  std::vector<int> load(static_cast<size_t>(routes.directed_links()), 0);
  for (const Ring& ring : rings) {
    add_load(routes, ring, false, load);
    if (both_ways) add_load(routes, ring, true, load);
  }
  double each = std::numeric_limits<double>::infinity();
  for (size_t link = 0; link < load.size(); ++link) {
    if (load[link] > 0) each = std::min(each, routes.capacity(static_cast<int>(link)) / load[link]);
  }
  return each * static_cast<double>(rings.size()) * (both_ways ? 2 : 1);
}

RingSet best_rings(const Topology& topology, const Routes& routes) {
  RingSet set;
  if (routes.workers() < 2) return set;
  set.rings = disjoint_direct_rings(topology, set.exact);
  if (set.rings.empty()) set.rings.push_back(widest_order(topology, routes, set.exact));
  set.bandwidth = ring_bandwidth(routes, set.rings, false);
  use_other_interfaces(routes, set);
  double both = ring_bandwidth(routes, set.rings, true);
  set.both_ways = both > set.bandwidth * kWorthwhile;
  if (set.both_ways) set.bandwidth = both;
  return set;
}

}  // namespace yoke::cluster
