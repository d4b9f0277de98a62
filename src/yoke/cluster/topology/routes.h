// Routes of messages between workers.
#pragma once

#include <vector>

#include "yoke/cluster/topology/topology.h"

namespace yoke::cluster {

// The widest path between every pair of workers (the shortest among equally wide ones). CPUs, switches and
// network interfaces forward messages; GPUs do not.
class Routes {
 public:
  // Throws ConfigError if two workers are not connected, naming both. Keeps no reference to `topology`.
  explicit Routes(const Topology& topology);

  int workers() const { return static_cast<int>(machines_.size()); }
  // Directed links: 2 * (index of the link) from a to b, plus one from b to a.
  const std::vector<int>& links(int from, int to) const { return at(from, to).links; }
  double bandwidth(int from, int to) const { return at(from, to).bandwidth; }
  double latency(int from, int to) const { return at(from, to).latency; }
  double capacity(int directed_link) const { return capacity_[static_cast<size_t>(directed_link / 2)]; }
  int directed_links() const { return 2 * static_cast<int>(capacity_.size()); }
  // Index of each worker's machine, from 0.
  int machine(int worker) const { return machines_[static_cast<size_t>(worker)]; }

 private:
  struct Route {
    std::vector<int> links;
    double bandwidth = 0;
    double latency = 0;
  };
  const Route& at(int from, int to) const {
    return routes_[static_cast<size_t>(from) * machines_.size() + static_cast<size_t>(to)];
  }

  std::vector<Route> routes_;
  std::vector<double> capacity_;
  std::vector<int> machines_;
};

}  // namespace yoke::cluster
