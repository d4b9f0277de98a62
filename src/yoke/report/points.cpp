#include "yoke/report/points.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace yoke::report {

std::vector<Point> thin_out(const std::vector<Point>& points, size_t most) {
  if (points.size() <= most) return points;
  size_t buckets = std::max<size_t>(most / 2, 1);
  std::vector<Point> kept;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    auto begin = points.begin() + static_cast<std::ptrdiff_t>(bucket * points.size() / buckets);
    auto end = points.begin() + static_cast<std::ptrdiff_t>((bucket + 1) * points.size() / buckets);
    std::vector<Point> finite;
    std::copy_if(begin, end, std::back_inserter(finite), [](const Point& p) { return std::isfinite(p.y); });
    auto gap = std::find_if(begin, end, [](const Point& p) { return !std::isfinite(p.y); });
    if (gap != end) kept.push_back(*gap);
    if (finite.empty()) continue;
    auto [low, high] = std::minmax_element(finite.begin(), finite.end(),
                                           [](const Point& a, const Point& b) { return a.y < b.y; });
    kept.push_back(low->x <= high->x ? *low : *high);
    if (low->x != high->x) kept.push_back(low->x <= high->x ? *high : *low);
  }
  std::stable_sort(kept.begin(), kept.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  return kept;
}

std::vector<Point> smooth(const std::vector<Point>& points, size_t reach) {
  // Prefix sums make each mean two subtractions.
  std::vector<double> sums(points.size() + 1, 0.0);
  std::vector<double> counts(points.size() + 1, 0.0);
  for (size_t i = 0; i < points.size(); ++i) {
    bool finite = std::isfinite(points[i].y);
    sums[i + 1] = sums[i] + (finite ? points[i].y : 0);
    counts[i + 1] = counts[i] + (finite ? 1 : 0);
  }
  std::vector<Point> result = points;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i].y)) continue;
    size_t begin = i - std::min(reach, i);
    size_t end = std::min(i + std::min(reach, i) + 1, points.size());
    result[i].y = (sums[end] - sums[begin]) / (counts[end] - counts[begin]);
  }
  return result;
}

}  // namespace yoke::report
