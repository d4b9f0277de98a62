// Options of L-BFGS on parameter servers: [sandblaster], and what else its coordinator is told.
#pragma once

#include <cstdint>

#include "yoke/config/fields.h"
#include "yoke/kernels/lbfgs.h"

namespace yoke::ps::sandblaster {

struct PortionOptions {
  int64_t portions = 0;  // of a batch; 0: kPortionsPerWorker for each worker
  bool backups = true;
};
inline constexpr int64_t kPortionsPerWorker = 8;

inline void describe(config::Fields& f, PortionOptions& o) {
  f.integer("portions", o.portions,
            "lbfgs on servers: portions of a batch, which free workers take; 0: 8 for each worker", 0,
            1'000'000);
  f.boolean("backups", o.backups, "lbfgs on servers: idle workers repeat portions that are late");
}

struct SandblasterOptions {
  kernels::LbfgsOptions lbfgs;
  PortionOptions how;
  double timeout = 300;  // seconds, of a server, or of the first worker while others wait for it
};

}  // namespace yoke::ps::sandblaster
