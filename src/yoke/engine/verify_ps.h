// verify() for layouts with parameter servers.
#pragma once

#include "yoke/engine/verify_trainee.h"

namespace yoke::engine {

// Workers and servers as threads of this process. Every worker's parameters are compared after each step.
void verify_with_servers(VerifyBench& bench);

}  // namespace yoke::engine
