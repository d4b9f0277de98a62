// The losses recorded by the scheduler of parameter servers: "loss_curve" in ps.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "yoke/metrics/record.h"

namespace yoke::report {

// The mean over some consecutive updates.
struct LossPoint {
  int64_t update = 0;  // the last of them
  double seconds = 0;
  double loss = 0;
  double gradients = 0;
};

// Empty if there are none, or they are invalid.
std::vector<LossPoint> loss_curve_of(const nlohmann::json& counts);

// The same with at most `most` points, merging neighbours. Requires most >= 1.
std::vector<LossPoint> coarser(const std::vector<LossPoint>& points, size_t most);

// Records with step, time and loss.
std::vector<metrics::Record> records_of(const std::vector<LossPoint>& points);

// `records`, with those between the first and the last of `points` replaced by `points`.
std::vector<metrics::Record> with_curve(const std::vector<metrics::Record>& records,
                                        const std::vector<LossPoint>& points);

}  // namespace yoke::report
