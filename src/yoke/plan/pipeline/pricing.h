// A planning problem and the cost of every stage in it; shared by both searches.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "yoke/plan/pipeline/cost_model.h"
#include "yoke/plan/pipeline/cuts.h"
#include "yoke/plan/pipeline/levels.h"

namespace yoke::plan {

// A device, if they are not all alike.
struct PlanDevice {
  double speed = 1;  // relative to the device the profile was measured on
  double memory = std::numeric_limits<double>::infinity();  // bytes
  bool operator==(const PlanDevice&) const = default;
};

struct PlanOptions {
  std::vector<Level> levels;  // innermost first
  const CostModel* model = nullptr;
  bool activation_cost = true;
  double memory = std::numeric_limits<double>::infinity();  // bytes per device
  bool straight = false;                                    // no replicas
  bool fewer_devices = false;  // components of the outermost level may stay idle if that is faster
  // Speed and memory of all devices of the only level; empty: all as in the profile, with `memory`.
  std::vector<PlanDevice> devices;
};

// A stage at one level, and its subdivision within a component.
struct PlanNode {
  int begin = 0;  // boundaries of Cuts
  int end = 0;
  int replicas = 1;
  std::vector<PlanNode> inner;  // empty at the innermost level
};

class Pricing {
 public:
  // Keeps a reference to `all`.
  Pricing(const Cuts& all, PlanOptions how);

  const CostModel& model() const { return *options.model; }
  const Level& level(int k) const { return options.levels[static_cast<size_t>(k)]; }
  int levels() const { return static_cast<int>(options.levels.size()); }
  int most_replicas(int devices) const { return options.straight ? std::min(1, devices) : devices; }
  bool stages_pay_cuts() const { return stages_pay_cuts_; }
  bool limited() const { return options.memory < std::numeric_limits<double>::infinity(); }

  // Devices per component of level k.
  double devices_below(int k) const { return devices_below_[static_cast<size_t>(k)]; }
  double sync(int k, int a, int b, int replicas, bool first) const {
    return sync_factor(k, replicas, first) * cuts.weights_of(a, b);
  }
  // Cost of stage [a, b) whose work takes `inner` seconds in each component. `first`: the first stage of its
  // level.
  double stage(int k, double inner, int a, int b, int replicas, bool first) const {
    double seconds = model().stage_seconds(inner, sync(k, a, b, replicas, first), replicas);
    if (first || !stages_pay_cuts_) return seconds;
    double bytes = 2 * std::max(cuts.crossing_at(a), cuts.crossing_at(b));
    return std::max(seconds, bytes / (level(k).bandwidth * replicas));
  }
  // Transfer over the cut at boundary b, both ways.
  double cut(int k, int b) const { return cuts_[static_cast<size_t>(k)][static_cast<size_t>(b)]; }
  const double* cut_prices(int k) const { return cuts_[static_cast<size_t>(k)].data(); }
  // Seconds of sync per byte of weights.
  double sync_factor(int k, int replicas, bool first) const {
    double factor = factors_[static_cast<size_t>(k)][static_cast<size_t>(replicas)];
    return first && k > 0 && model().released_rules ? factor / level(k - 1).count : factor;
  }
  // Bytes of one version of a stage: its weights, and the outputs kept for the backward pass.
  double bytes_per_version(int a, int b) const { return cuts.weights_of(a, b) + cuts.activations_of(a, b); }
  // Number of versions of the stage that fit into a device.
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

 private:
  std::vector<std::vector<double>> factors_;  // [level][replicas]
  std::vector<std::vector<double>> cuts_;     // [level][boundary]
  std::vector<double> devices_below_;         // [level]
  bool stages_pay_cuts_;
};

}  // namespace yoke::plan
