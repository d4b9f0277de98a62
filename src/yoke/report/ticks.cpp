#include "yoke/report/ticks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "yoke/base/units.h"

namespace yoke::report {
namespace {

constexpr double kLargest = 1e300;    // differences of two such values do not overflow
constexpr double kSmallest = 1e-290;  // steps between smaller ones would not be representable

double tame(double value) {
  if (!std::isfinite(value) || std::abs(value) < kSmallest) return 0;
  return std::clamp(value, -kLargest, kLargest);
}

double nice_step(double rough) {
  double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power * 1.2) return factor * power;
  }
  return 10 * power;
}

std::string plain(double value) {
  std::string text = fmt::format("{:.6g}", value);
  // 2e-05 is shown as 2e-5.
  for (const char* sign : {"e-0", "e+0"}) {
    size_t at = text.find(sign);
    if (at != std::string::npos) text.erase(at + 2, 1);
  }
  return text;
}

struct Scale {
  double factor;
  const char* name;
};

Scale scale_for(double largest, Unit unit) {
  double size = std::abs(largest);
  switch (unit) {
    case Unit::kPercent:
      return {0.01, "%"};
    case Unit::kBytes:
      return size >= 1e12  ? Scale{1e12, " TB"}
             : size >= 1e9 ? Scale{1e9, " GB"}
             : size >= 1e6 ? Scale{1e6, " MB"}
             : size >= 1e3 ? Scale{1e3, " kB"}
                           : Scale{1, " B"};
    case Unit::kSeconds:
      return size >= 1 ? Scale{1, " s"} : size >= 1e-3 ? Scale{1e-3, " ms"} : Scale{1e-6, " µs"};
    case Unit::kNumber:
      break;
  }
  return size >= 1e12 || size < 1e4 ? Scale{1, ""}
         : size >= 1e9              ? Scale{1e9, "G"}
         : size >= 1e6              ? Scale{1e6, "M"}
                                    : Scale{1e3, "k"};
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int most) {
  low = tame(low);
  high = tame(high);
  if (low > high) std::swap(low, high);
  double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= size * 1e-9 || high == low) {
    double margin = size > 0 ? size * 0.1 : 1;
    low -= margin;
    high += margin;
  }
  double step = nice_step((high - low) / std::max(most - 1, 1));
  double first = std::floor(low / step + 1e-9);
  double last = std::ceil(high / step - 1e-9);
  std::vector<double> ticks;
  for (double index = first; index <= last; ++index) ticks.push_back(index * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  auto first = static_cast<int>(std::floor(std::log10(low)));
  auto last = static_cast<int>(std::ceil(std::log10(high)));
  if (first == last) ++last;
  int stride = std::max(1, (last - first + 5) / 6);
  std::vector<double> ticks;
  for (int power = first; power <= last; power += stride) {
    ticks.push_back(std::pow(10.0, power));
    if (last - first > 2 || power == last) continue;
    ticks.push_back(2 * ticks.back());
    ticks.push_back(2.5 * ticks.back());
  }
  if (ticks.back() < high) ticks.push_back(std::pow(10.0, last));
  while (ticks.size() > 2 && ticks[1] <= low) ticks.erase(ticks.begin());
  while (ticks.size() > 2 && ticks[ticks.size() - 2] >= high) ticks.pop_back();
  return ticks;
}

std::string tick_text(double value, double largest, Unit unit) {
  if (value == 0 && unit == Unit::kNumber) return "0";
  Scale scale = scale_for(largest, unit);
  return plain(value / scale.factor) + scale.name;
}

std::string value_text(double value, Unit unit) {
  if (!std::isfinite(value)) return "not finite";
  switch (unit) {
    case Unit::kPercent:
      return fmt::format("{:.2f}%", value * 100);
    case Unit::kSeconds:
      if (std::abs(value) >= 60) return format_duration(value);
      [[fallthrough]];
    case Unit::kBytes: {
      Scale scale = scale_for(value, unit);
      return fmt::format("{:.4g}{}", value / scale.factor, scale.name);
    }
    case Unit::kNumber:
      break;
  }
  return std::abs(value) >= 1000 && std::abs(value) < 1e15 ? format_count(value)
                                                           : fmt::format("{:.4g}", value);
}

}  // namespace yoke::report
