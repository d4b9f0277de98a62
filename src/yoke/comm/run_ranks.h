// Ranks as threads of this process: for tests, for trying things out, and for `--backend local`.
#pragma once

#include <functional>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

// Runs `body` on `size` threads, each with its rank's communicator over `local`. Returns when all have ended.
// Where a body throws, the job fails for the others too, and the first exception is thrown here.
void run_ranks(int size, const std::function<void(Communicator&)>& body, double timeout = 60);

}  // namespace yoke::comm
