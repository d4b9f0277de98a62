// [hybrid]: gradients summed by workers and spare machines (parallel.sync = "hybrid").
#pragma once

#include <cstdint>

#include "yoke/config/fields.h"

namespace yoke::parallel {

struct HybridOptions {
  int64_t servers = 1;             // spare ranks, behind the workers
  int64_t part_bytes = 4'000'000;  // the largest part that one rank sums at a time
};

inline void describe(config::Fields& f, HybridOptions& o) {
  f.integer("servers", o.servers, "ranks on spare machines that only sum gradients; at most one per worker",
            0, 65536);
  f.bytes("part_bytes", o.part_bytes, "gradients are summed in parts of at most this size");
}

}  // namespace yoke::parallel
