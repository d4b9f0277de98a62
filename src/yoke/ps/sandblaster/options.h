// Options of L-BFGS on parameter servers.
#pragma once

#include "yoke/kernels/lbfgs.h"

namespace yoke::ps::sandblaster {

struct SandblasterOptions {
  kernels::LbfgsOptions lbfgs;
  int64_t portions = 8;  // of a batch, per worker
  double timeout = 300;  // seconds, of a server, or of the first worker while others wait for it
};

}  // namespace yoke::ps::sandblaster
