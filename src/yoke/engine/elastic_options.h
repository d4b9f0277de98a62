// [elastic]: jobs whose ranks may die, leave and return.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::engine {

struct ElasticOptions {
  bool enabled = false;
  int64_t min = 1;  // ranks
  int64_t restarts = 0;
  std::string batch = "global";
  int64_t replicas = 1;
};

inline void describe(config::Fields& f, ElasticOptions& o) {
  f.boolean("enabled", o.enabled, "continue without ranks that die or leave, and with those that return");
  f.integer("min", o.min, "fewest ranks: with fewer the job fails", 1, 1'000'000);
  f.integer("restarts", o.restarts,
            "how often a lost rank is restarted into the running job (yoke run: --max-restarts)", 0,
            1'000'000);
  f.choice(
      "batch", o.batch, {"global", "per_rank"},
      "after a change: the same global batch, divided again; or the same batch per rank, with the learning "
      "rate in proportion to the ranks");
  f.integer("replicas", o.replicas,
            "copies of every shard (parallel.zero) or stage, held by another rank and renewed after every "
            "step; 0: what a lost rank held comes from the last checkpoint",
            0, 1);
}

}  // namespace yoke::engine
