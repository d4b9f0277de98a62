// The charts of a run, drawn from its records.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "yoke/metrics/record.h"
#include "yoke/metrics/summary.h"

namespace yoke::report {

struct Figure {
  std::string heading;
  std::string svg;
};

// Speed against the number of workers, beside the ideal line; empty without a run on one device to compare.
std::optional<Figure> scaling_of(const metrics::Summary& summary);

// Loss, accuracy, learning rate, throughput, gradient norm, loss scale, memory: those that the records have.
// `losses`: records to draw the training loss from, where others know it better.
std::vector<Figure> figures_of(const std::vector<metrics::Record>& records,
                               const std::vector<metrics::Record>& losses);

inline constexpr std::array kPhases = {"data", "forward", "backward", "communication", "update", "other"};

// Where the time of the steps went; empty where no record tells.
struct TimeShares {
  std::vector<double> seconds;  // per step and phase, on average
  std::string svg;              // over the run
};
TimeShares time_shares(const std::vector<metrics::Record>& records);

}  // namespace yoke::report
