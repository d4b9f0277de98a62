// [out]: where a run writes, and what.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::metrics {

struct OutOptions {
  std::string dir;  // empty: runs/<model>_<data>
  int64_t log_every = 10;
  bool tensorboard = true;
  bool trace = false;
  bool report = true;
};

inline void describe(config::Fields& f, OutOptions& o) {
  f.text("dir", o.dir, "folder of the run; empty is runs/<model>_<data>");
  f.integer("log_every", o.log_every, "steps between two records", 1);
  f.boolean("tensorboard", o.tensorboard, "write TensorBoard event files");
  f.boolean("trace", o.trace, "write a Chrome trace of every step to DIR/trace/");
  f.boolean("report", o.report, "write DIR/report.html at the end");
}

}  // namespace yoke::metrics
