#include "yoke/plan/pipeline/planner.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/plan/pipeline/interval_rows.h"
#include "yoke/plan/pipeline/threshold_search.h"
#include "yoke/plan/pipeline/unequal.h"

namespace yoke::plan {
namespace {

using Stages = std::vector<PlanNode>;

[[noreturn]] void fail_no_plan(const Pricing& pricing) {
  const PlanOptions& options = pricing.options;
  int devices = device_count(options.levels);
  if (options.straight && devices > pricing.cuts.count() && !options.fewer_devices)
    throw ConfigError(
        "--straight on {} devices: there are only {} layers. Use --fewer-devices, or fewer devices.", devices,
        pricing.cuts.count());
  if (pricing.limited())
    throw ConfigError(
        "--memory {}: no plan on {} devices fits. The network's weights and outputs are {} and {} in total; "
        "use more memory, more devices or a smaller batch.",
        format_bytes(options.memory), devices, format_bytes(pricing.cuts.weights.back()),
        format_bytes(pricing.cuts.activations.back()));
  throw ConfigError("no plan of {} layers on {} devices exists.", pricing.cuts.count(), devices);
}

class Planner {
 public:
  explicit Planner(const Pricing& pricing) : pricing_(pricing), rows_(pricing), top_(pricing.levels() - 1) {}

  // With a memory limit the inside of a machine depends on the stages behind it, so the recurrence is needed.
  bool coupled() const { return pricing_.limited() && top_ > 0; }

  Stages best() { return coupled() ? by_recurrence() : by_threshold(0); }

  // Empty: no plan with this many stages.
  Stages by_threshold(int stages) {
    ThresholdSearch search(pricing_, top_ == 0 ? nullptr : &rows_.table(top_ - 1, {}));
    auto found = search.best(stages);
    if (!found) return {};
    for (PlanNode& node : found->stages) {
      if (top_ > 0)
        node.inner = rows_.stages(top_ - 1, {}, node.begin, node.end, pricing_.level(top_ - 1).count);
    }
    return found->stages;
  }

 private:
  Stages by_recurrence() {
    const int all = pricing_.level(top_).count, end = pricing_.cuts.count();
    int best = 0;
    double seconds = std::numeric_limits<double>::infinity();
    for (int used = pricing_.options.fewer_devices ? 1 : all; used <= all; ++used) {
      double time = rows_.seconds_with(top_, {}, 0, end, used);
      if (time < seconds) {
        seconds = time;
        best = used;
      }
    }
    return best == 0 ? Stages{} : rows_.stages(top_, {}, 0, end, best);
  }

  const Pricing& pricing_;
  IntervalRows rows_;
  const int top_;
};

}  // namespace

PipelinePlan make_plan(const Cuts& cuts, const PlanOptions& options) {
  validate(options.levels);
  if (!options.devices.empty()) return plan_unequal(cuts, options);
  Pricing pricing(cuts, options);
  Stages stages = Planner(pricing).best();
  if (stages.empty()) fail_no_plan(pricing);
  return price_plan(cuts, options, stages);
}

std::vector<PipelinePlan> plans_by_stages(const Cuts& cuts, const PlanOptions& options, int most) {
  validate(options.levels);
  if (!options.devices.empty()) return unequal_by_stages(cuts, options, most);
  Pricing pricing(cuts, options);
  Planner planner(pricing);
  if (planner.coupled()) return {make_plan(cuts, options)};
  std::vector<PipelinePlan> plans;
  for (int count = 1; count <= most; ++count) {
    Stages stages = planner.by_threshold(count);
    if (!stages.empty()) plans.push_back(price_plan(cuts, options, stages));
  }
  return plans;
}

}  // namespace yoke::plan
