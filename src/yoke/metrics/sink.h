// Interface of observers of records.
#pragma once

#include <string>

#include "yoke/metrics/record.h"

namespace yoke::metrics {

// Description of the run, passed once at its start.
struct RunInfo {
  std::string name{};       // "lenet on fashion_mnist"
  int64_t total_steps = 0;  // planned; 0: unknown
  int64_t first_step = 0;   // steps already done (resumed)
  bool tokens = false;      // show speed in tokens
};

// Called from the training thread only. start() throws ConfigError if its file cannot be written; later a
// full disk does not end the run: records are held until there is room.
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
