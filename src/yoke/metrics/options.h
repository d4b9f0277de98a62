// [out]: what a run writes, and where.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::metrics {

struct OutOptions {
  std::string dir{};  // empty: runs/<model>_<data>
  int64_t log_every = 10;
  bool tensorboard = true;
  bool trace = false;
  bool report = true;
};

inline void describe(config::Fields& f, OutOptions& o) {
  f.text("dir", o.dir, "run folder; empty: runs/<model>_<data>");
  f.integer("log_every", o.log_every, "write a metrics record every N steps", 1);
  f.boolean("tensorboard", o.tensorboard, "write TensorBoard event files");
  f.boolean("trace", o.trace, "write a Chrome trace of every step to trace/");
  f.boolean("report", o.report, "write report.html at the end");
}

}  // namespace yoke::metrics
