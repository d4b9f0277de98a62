// A measured pipeline and the same schedule simulated.
#pragma once

#include <string>

#include "yoke/metrics/timeline.h"

namespace yoke::report {

struct PipelineComparison {
  std::string title;  // "1f1b, 4 stages, 8 micro-batches"
  metrics::Timeline measured;
  metrics::Timeline simulated;
  // How much longer (negative: shorter) the simulation is than the measurement.
  double error_percent() const {
    return measured.makespan > 0 ? 100 * (simulated.makespan / measured.makespan - 1) : 0;
  }
};

// The section of a report: one picture, and the error in words.
std::string pipeline_section(const PipelineComparison& comparison);

}  // namespace yoke::report
