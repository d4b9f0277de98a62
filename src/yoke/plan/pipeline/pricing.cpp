#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

Pricing::Pricing(const Cuts& all, PlanOptions how)
    : cuts(all),
      options(std::move(how)),
      stages_pay_cuts_(options.activation_cost && options.model->released_rules) {
  const bool cuts_cost = options.activation_cost && !options.model->released_rules;
  double devices = 1;
  for (const Level& level : options.levels) {
    std::vector<double>& factors = factors_.emplace_back();
    for (int r = 0; r <= level.count; ++r)
      factors.push_back(r < 2 ? 0 : options.model->sync_seconds(r, 1, level.bandwidth));
    std::vector<double>& prices = cuts_.emplace_back(cuts.crossing.size());
    for (size_t b = 0; cuts_cost && b < prices.size(); ++b)
      prices[b] = 2 * cuts.crossing[b] / level.bandwidth;
    devices_below_.push_back(devices);
    devices *= level.count;
  }
}

}  // namespace yoke::plan
