// A record as one line of text.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/metrics/record.h"

namespace yoke::metrics {

struct LineStyle {
  int width = 0;             // available columns; less important fields are omitted to fit; 0: no limit
  bool tokens = false;       // show speed in tokens
  int64_t total_steps = 0;   // 0: unknown
  double seconds_left = -1;  // negative: unknown
};

// "step: 10/100  loss: 4.8213  lr: 0.05  grad_norm: 1.02  memory: 0.9GiB  samples/s: 21,034  left: 1m 20s".
std::string to_line(const Record& record, const LineStyle& style);

// "step: 10/100  samples/s: 21,034  left: 1m 20s", for steps without a record.
std::string to_line(int64_t step, double samples_per_s, const LineStyle& style);

}  // namespace yoke::metrics
