// Quantiles of measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace yoke::metrics {

// The `q` quantile (0 to 1) of the finite values, linearly interpolated as in NumPy. NaN if no value is
// finite.
inline double quantile(std::vector<double> values, double q) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(values.size() - 1);
  auto below = static_cast<size_t>(position);
  size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}
inline double p95(std::vector<double> values) {
  return quantile(std::move(values), 0.95);
}

}  // namespace yoke::metrics
