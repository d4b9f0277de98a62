// Which of several curves is the lowest, and from where on.
#pragma once

#include <string>
#include <vector>

#include "yoke/report/svg_chart.h"

namespace yoke::cli {

struct Fastest {
  std::string name;
  double from = 0;  // x of the first point where it is the lowest
  double seconds = 0;
};

// Requires that all curves have their points at the same x.
inline std::vector<Fastest> fastest_of(const std::vector<report::Series>& curves) {
  std::vector<Fastest> found;
  for (size_t i = 0; !curves.empty() && i < curves.front().points.size(); ++i) {
    const report::Series* best = &curves.front();
    for (const report::Series& curve : curves)
      if (curve.points[i].y < best->points[i].y) best = &curve;
    if (found.empty() || found.back().name != best->name)
      found.push_back({best->name, best->points[i].x, best->points[i].y});
  }
  return found;
}

}  // namespace yoke::cli
