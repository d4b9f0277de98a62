// Points of a curve.
#pragma once

#include <cstddef>
#include <vector>

namespace yoke::report {

// A y that is not finite is a gap.
struct Point {
  double x = 0;
  double y = 0;
};

// At most about `most` points that look the same: the minimum, the maximum and a gap of each interval are
// kept.
std::vector<Point> thin_out(const std::vector<Point>& points, size_t most);

// Mean of each point and up to `reach` neighbours on both sides; near the start symmetric, so that the steep
// beginning of a curve is not flattened. Gaps stay gaps and are excluded.
std::vector<Point> smooth(const std::vector<Point>& points, size_t reach);

}  // namespace yoke::report
