#include "yoke/report/loss_curve.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace yoke::report {

std::vector<LossPoint> loss_curve_of(const nlohmann::json& counts) {
  std::vector<LossPoint> points;
  try {
    if (!counts.contains("loss_curve")) return {};
    const nlohmann::json& curve = counts.at("loss_curve");
    for (size_t i = 0; i < curve.at("version").size(); ++i) {
      const nlohmann::json& loss = curve.at("loss").at(i);
      points.push_back({curve.at("version").at(i).get<int64_t>(), curve.at("seconds").at(i).get<double>(),
                        loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>(),
                        curve.at("gradients").at(i).get<double>()});
    }
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return points;
}

std::vector<LossPoint> coarser(const std::vector<LossPoint>& points, size_t most) {
  size_t each = (points.size() + most - 1) / most;
  std::vector<LossPoint> coarse;
  for (size_t i = 0; i < points.size(); i += each) {
    size_t end = std::min(points.size(), i + each);
    LossPoint mean{points[end - 1].update, points[end - 1].seconds, 0, 0};
    for (size_t j = i; j < end; ++j) {
      mean.loss += points[j].loss * points[j].gradients;
      mean.gradients += points[j].gradients;
    }
    mean.loss = mean.gradients > 0 ? mean.loss / mean.gradients : points[end - 1].loss;
    coarse.push_back(mean);
  }
  return coarse;
}

std::vector<metrics::Record> records_of(const std::vector<LossPoint>& points) {
  std::vector<metrics::Record> records(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    records[i].step = points[i].update;
    records[i].time = points[i].seconds;
    records[i].loss = points[i].loss;
  }
  return records;
}

std::vector<metrics::Record> with_curve(const std::vector<metrics::Record>& records,
                                        const std::vector<LossPoint>& points) {
  if (points.empty()) return records;
  std::vector<metrics::Record> all = records_of(points);
  auto first = std::find_if(records.begin(), records.end(), [&](const metrics::Record& record) {
    return record.step >= points.front().update;
  });
  auto behind = std::find_if(first, records.end(), [&](const metrics::Record& record) {
    return record.step > points.back().update;
  });
  all.insert(all.end(), behind, records.end());
  all.insert(all.begin(), records.begin(), first);
  return all;
}

}  // namespace yoke::report
