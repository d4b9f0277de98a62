// Time of collectives on a topology: the lists that backends execute, with every message on its links.
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
// A round takes the longest latency of its messages, plus the time its busiest link needs for all data that
// crosses it in one direction. `ring` uses the best rings concurrently, each with its share of the data;
// other algorithms use the workers in the order of the topology.
class TopologyPricer {
 public:
  // Throws ConfigError for a topology that is not connected or has more than 512 workers.
  explicit TopologyPricer(const cluster::Topology& topology);

  const cluster::RingSet& rings() const { return rings_; }
  // Workers per machine if there are several equal machines; otherwise 1: no hierarchy.
  int machine_size() const { return machine_size_; }
  // Algorithms that can be priced: algorithms_for(op) without summation, hierarchical only if there is a
  // hierarchy.
  std::vector<plan::Algorithm> algorithms(plan::Collective op) const;

  // `bytes` as counted by nccl-tests: the whole array, all parts together. Throws ConfigError if the
  // algorithm does not support the operation.
  double seconds(plan::Collective op, plan::Algorithm algorithm, int64_t bytes) const;

  // Bytes over each directed link (numbered as in Routes).
  std::vector<double> link_bytes(plan::Collective op, plan::Algorithm algorithm, int64_t bytes) const;

 private:
  cluster::Routes routes_;
  cluster::RingSet rings_;
  int machine_size_ = 1;
};

}  // namespace yoke::sim
