// One planning problem and the price of every stage in it; what both searches share.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "yoke/plan/pipeline/cost_model.h"
#include "yoke/plan/pipeline/cuts.h"
#include "yoke/plan/pipeline/levels.h"

namespace yoke::plan {

struct PlanOptions {
  std::vector<Level> levels;  // from the innermost outwards
  const CostModel* model = nullptr;
  bool activation_cost = true;
  double memory = std::numeric_limits<double>::infinity();  // bytes of each device
  bool straight = false;                                    // no replicas
  bool fewer_devices = false;  // components of the outermost level may stay idle where that is better
};

// A stage at one level, and how the component below divides it.
struct PlanNode {
  int begin = 0;  // boundaries of Cuts
  int end = 0;
  int replicas = 1;
  std::vector<PlanNode> inner;  // empty at the innermost level
};

class Pricing {
 public:
  Pricing(const Cuts& all, PlanOptions how) : cuts(all), options(std::move(how)) {}

  const CostModel& model() const { return *options.model; }
  const Level& level(int k) const { return options.levels[static_cast<size_t>(k)]; }
  int levels() const { return static_cast<int>(options.levels.size()); }
  int most_replicas(int devices) const { return options.straight ? std::min(1, devices) : devices; }
  bool limited() const { return options.memory < std::numeric_limits<double>::infinity(); }

  // Devices in one component that level k counts.
  double devices_below(int k) const {
    double count = 1;
    for (int i = 0; i < k; ++i) count *= level(i).count;
    return count;
  }
  double sync(int k, int a, int b, int replicas, bool first) const {
    double seconds = model().sync_seconds(replicas, cuts.weights_of(a, b), level(k).bandwidth);
    return model().released_rules && first && k > 0 ? seconds / level(k - 1).count : seconds;
  }
  // Stage [a, b) whose work takes `inner` seconds in each component. `first`: of those its level splits.
  double stage(int k, double inner, int a, int b, int replicas, bool first) const {
    double seconds = model().stage_seconds(inner, sync(k, a, b, replicas, first), replicas);
    if (!options.activation_cost || !model().released_rules || first) return seconds;
    double bytes = 2 * std::max(cuts.crossing_at(a), cuts.crossing_at(b));
    return std::max(seconds, bytes / (level(k).bandwidth * replicas));
  }
  // Both ways over the cut at boundary b.
  double cut(int k, int b) const {
    if (!options.activation_cost || model().released_rules) return 0;
    return 2 * cuts.crossing_at(b) / level(k).bandwidth;
  }
  // What one version of a stage takes: its weights, and the outputs kept for the backward pass.
  double bytes_per_version(int a, int b) const { return cuts.weights_of(a, b) + cuts.activations_of(a, b); }
  // How many versions of the stage fit into a device.
  int64_t versions_that_fit(int a, int b) const {
    if (!limited()) return kAnyNumber;
    double bytes = bytes_per_version(a, b);
    if (bytes <= 0) return kAnyNumber;
    double versions = options.memory / bytes;
    return versions >= static_cast<double>(kAnyNumber) ? kAnyNumber : static_cast<int64_t>(versions);
  }
  static constexpr int64_t kAnyNumber = int64_t{1} << 40;

  const Cuts& cuts;
  const PlanOptions options;
};

}  // namespace yoke::plan
