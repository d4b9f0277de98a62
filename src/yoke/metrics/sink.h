// Where records go.
#pragma once

#include <string>

#include "yoke/metrics/record.h"

namespace yoke::metrics {

// What the run is, told once at its start.
struct RunInfo {
  std::string name{};       // "lenet on fashion_mnist"
  int64_t total_steps = 0;  // planned; 0 when unknown
  int64_t first_step = 0;   // steps already done (resumed)
  bool tokens = false;      // speed is better told in tokens
};

// Called from the training thread only. Throws ConfigError when its file cannot be written (disk full):
// a run whose record is lost is not a run.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void start(const RunInfo&) {}
  // Every step; cheap. For progress bars.
  virtual void tick(int64_t /*step*/, double /*samples_per_s*/) {}
  virtual void write(const Record& record) = 0;
  virtual void finish() {}
};

}  // namespace yoke::metrics
