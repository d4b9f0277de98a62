// Ranks as threads of this process, for tests, experiments and `--backend local`.
#pragma once

#include <functional>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

// Runs `body` on `size` threads, each with the communicator of its rank over `local`. Returns when all have
// ended. If a body throws a std::exception, the job fails for the other ranks too, and that exception is
// rethrown here. If a body returns while another rank waits for it in an operation, that operation fails
// within two seconds. `timeout`: seconds per operation.
void run_ranks(int size, const std::function<void(Communicator&)>& body, double timeout = 60);

}  // namespace yoke::comm
