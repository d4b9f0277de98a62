// [checkpoint]: when state is saved and how much of it is kept.
#pragma once

#include <cstdint>

#include "yoke/config/fields.h"

namespace yoke::checkpoint {

struct CheckpointOptions {
  int64_t every_steps = 100;
  int64_t keep = 2;
  bool background = true;
};

inline void describe(config::Fields& f, CheckpointOptions& o) {
  f.integer("every_steps", o.every_steps, "save after every N steps, and at the end; 0 saves nothing");
  f.integer("keep", o.keep, "how many checkpoints stay; older ones are removed once a newer one is safe", 1);
  f.boolean("background", o.background, "write while training goes on");
}

}  // namespace yoke::checkpoint
