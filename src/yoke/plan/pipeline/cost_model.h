// What a stage costs: the four published ways to price the same plan, as a table of plug-ins.
//
// A stage of compute time C (seconds a minibatch) and weights W (bytes) on r replicas over a bandwidth B:
//   paper2018  max(C, 4(r-1)/r W/B) / r     a cut costs 2a/B
//   paper2019  max(C, 2(r-1)   W/B) / r     a cut costs 2a/B
//   ring       max(C, 2(r-1)/r W/B) / r     a cut costs 2a/B
//   released   (C + 4(r-1)/r W/B) / r       every stage but the first: max(2 a_in, 2 a_out)/(B r), off unless
//   asked
// (docs/design/pipeline.md says which to trust.)
#pragma once

#include <string>

namespace yoke::plan {

struct CostModel {
  const char* name;
  // Weights' worth of bytes that cross the wire while r replicas agree. For r >= 2, volume(r)/r either falls
  // or rises throughout; the search for plans relies on it.
  double (*volume)(int replicas);
  bool volume_per_replica_rises;
  bool overlaps;  // sync runs beside compute (the larger counts), or after it (the sum counts)
  // As the released optimizer: cuts are paid per receiving replica, and in the first stage of a level the
  // sync is divided by the number of devices in a component below.
  bool released_rules;
  bool activation_cost;  // unless the user says otherwise

  double sync_seconds(int replicas, double weights, double bandwidth) const {
    return replicas == 1 ? 0.0 : volume(replicas) * weights / bandwidth;
  }
  // What the stage takes for each minibatch, on the average over its replicas.
  double stage_seconds(double compute, double sync, int replicas) const {
    return (overlaps ? (compute > sync ? compute : sync) : compute + sync) / replicas;
  }
};

// Throws ConfigError that lists the names.
const CostModel& cost_model(const std::string& name);

}  // namespace yoke::plan
