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
  f.integer("every_steps", o.every_steps, "save every N steps and at the end; 0: never");
  f.integer("keep", o.keep,
            "number of checkpoints to keep; older ones are removed after a newer one is committed", 1);
  f.boolean("background", o.background, "write checkpoints in the background");
}

}  // namespace yoke::checkpoint
