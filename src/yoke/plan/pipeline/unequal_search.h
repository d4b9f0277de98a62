// "Is there a plan within T?" over sets of devices, for decreasing T.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "yoke/plan/pipeline/bit_set.h"
#include "yoke/plan/pipeline/pricing.h"
#include "yoke/plan/pipeline/unequal_states.h"

namespace yoke::plan {

struct UnequalStage {
  int begin = 0;  // boundaries of Cuts
  int end = 0;
  int from = 0;  // states before and after the stage took its devices
  int to = 0;
  int group = 0;
};

class UnequalSearch {
 public:
  // Keeps references to both.
  UnequalSearch(const Pricing& pricing, const DeviceStates& states);

  struct Found {
    double seconds = 0;
    std::vector<UnequalStage> stages;  // first to last
  };
  // The best plan, with exactly `stages` stages unless 0. Empty: none exists.
  std::optional<Found> best(int stages = 0);

 private:
  using Reach = std::vector<Bits>;  // [state]: boundaries from which these devices can do the rest
  using Lowest = std::vector<int>;  // [end]: the first boundary at which a stage up to `end` may start

  std::optional<Found> within(double limit, int stages);
  void fill(double limit, const Reach& after, Reach& reach);
  void pass_on(double limit, const Bits& ends, const DeviceGroup& group, int64_t versions, Bits& begins);
  const Lowest& lowest(double limit, const DeviceGroup& group, int64_t versions);
  bool allowed(double limit, const DeviceGroup& group, int64_t versions, int a, int b) const;
  double price(const DeviceGroup& group, int a, int b) const;
  int64_t versions(int state, const DeviceGroup& group) const;
  UnequalStage first_stage(double limit, int a, int state, const Reach& after) const;

  const Pricing& pricing_;
  const DeviceStates& states_;
  const int end_;
  double fastest_ = 0;  // all devices together
  Bits open_;           // cuts within the limit
  std::map<std::pair<DeviceGroup, int64_t>, Lowest> lowest_;
  std::vector<Reach> layers_;                    // [number of stages], or one for any number
  std::vector<std::vector<UnequalStage>> into_;  // [state]: steps that lead there
};

}  // namespace yoke::plan
