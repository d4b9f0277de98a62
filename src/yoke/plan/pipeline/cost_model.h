// Cost of a stage: the four published cost models, as a table.
//
// A stage with compute time C (seconds per minibatch) and weights W (bytes) on r replicas over a bandwidth B:
//   paper2018  max(C, 4(r-1)/r W/B) / r     a cut costs 2a/B
//   paper2019  max(C, 2(r-1)   W/B) / r     a cut costs 2a/B
//   ring       max(C, 2(r-1)/r W/B) / r     a cut costs 2a/B
//   released   (C + 4(r-1)/r W/B) / r       off by default: stages but the first pay
//                                           max(2 a_in, 2 a_out)/(B r)
// docs/design/pipeline.md explains which to trust.
#pragma once

#include <string>

namespace yoke::plan {

struct CostModel {
  const char* name;
  // Bytes sent to synchronise r replicas, in units of the weights. For r >= 2, volume(r)/r is monotonic,
  // which the search for plans relies on.
  double (*volume)(int replicas);
  bool volume_per_replica_rises;
  bool overlaps;  // sync overlaps compute (maximum), or follows it (sum)
  // As in the released optimizer: cuts are paid per receiving replica, and in the first stage of a level the
  // sync is divided by the number of devices in a component below.
  bool released_rules;
  bool activation_cost;  // default

  double sync_seconds(int replicas, double weights, double bandwidth) const {
    return replicas == 1 ? 0.0 : volume(replicas) * weights / bandwidth;
  }
  // Average time of the stage per minibatch, over its replicas.
  double stage_seconds(double compute, double sync, int replicas) const {
    return (overlaps ? (compute > sync ? compute : sync) : compute + sync) / replicas;
  }
};

// Throws ConfigError that lists the names.
const CostModel& cost_model(const std::string& name);

}  // namespace yoke::plan
