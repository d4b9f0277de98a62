// The time of collectives on a topology: the lists that backends execute, with every message on its links.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/cluster/topology/rings.h"
#include "yoke/cluster/topology/routes.h"
#include "yoke/cluster/topology/topology.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::sim {

// Prices collectives among all workers of one topology.
//
// A round takes the longest latency of its messages, and the time its busiest link needs for all that crosses
// it in one direction. `ring` runs on the best rings, all at once, each with its share of the data; the
// others take the workers in the order of the topology.
class TopologyPricer {
 public:
  // Throws ConfigError for a topology that is not connected or has more than 512 workers.
  explicit TopologyPricer(const cluster::Topology& topology);

  const cluster::RingSet& rings() const { return rings_; }
  // Workers of each machine when there are several machines alike; 1 otherwise: then there is no hierarchy.
  int machine_size() const { return machine_size_; }
  // What can be priced: algorithms_for(op), hierarchical only where there is one.
  std::vector<plan::Algorithm> algorithms(plan::Collective op) const;

  // `bytes` as nccl-tests count them: the whole array, all parts together. Throws ConfigError when there is
  // no such form.
  double seconds(plan::Collective op, plan::Algorithm algorithm, int64_t bytes) const;

  // Bytes over each directed link (numbered as in Routes).
  std::vector<double> link_bytes(plan::Collective op, plan::Algorithm algorithm, int64_t bytes) const;

 private:
  cluster::Routes routes_;
  cluster::RingSet rings_;
  int machine_size_ = 1;
};

}  // namespace yoke::sim
