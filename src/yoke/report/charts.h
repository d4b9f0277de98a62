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

// Speed against the number of workers, with the ideal line; empty without a one-device run for comparison.
std::optional<Figure> scaling_of(const metrics::Summary& summary);

// Loss, accuracy, learning rate, throughput, gradient norm, loss scale, memory: those in the records.
// `losses`: records for the training loss, which may have a better source.
std::vector<Figure> figures_of(const std::vector<metrics::Record>& records,
                               const std::vector<metrics::Record>& losses);

inline constexpr std::array kPhases = {"data", "forward", "backward", "communication", "update", "other"};

// How the time of the steps was spent; empty if no record has it.
struct TimeShares {
  std::vector<double> seconds;  // per step and phase, mean
  std::string svg;              // over the run
};
TimeShares time_shares(const std::vector<metrics::Record>& records);

}  // namespace yoke::report
