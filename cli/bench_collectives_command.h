// yoke bench collectives: latency and bandwidth of any backend, operation and algorithm.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int bench_collectives(const CommandLine& line);

}  // namespace yoke::cli
