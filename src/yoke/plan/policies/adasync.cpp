#include "yoke/plan/policies/adasync.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"

namespace yoke::plan {

double adasync_k(Rule rule, int workers, double k0, double loss0, double loss) {
  YOKE_CHECK(traits_of(rule).k == RuleTraits::kGiven, "{} has no K", to_string(rule));
  YOKE_CHECK(loss0 > 0 && loss > 0, "losses {} and {}", loss0, loss);
  double p = workers, ratio = loss0 / loss;
  if (rule == Rule::kKBatchSync || rule == Rule::kKBatchAsync) return k0 * std::sqrt(ratio);
  if (k0 >= p) return p;
  // K^2 + c K - c P = 0.
  double c = k0 * k0 / (p - k0) * ratio;
  return (std::sqrt(c * c + 4 * c * p) - c) / 2;
}

int64_t adasync_whole_k(Rule rule, int workers, int64_t k0, double loss0, double loss) {
  double k = adasync_k(rule, workers, static_cast<double>(k0), loss0, loss);
  return std::clamp<int64_t>(std::llround(std::min(k, 1e9)), std::min<int64_t>(k0, workers), workers);
}

}  // namespace yoke::plan
