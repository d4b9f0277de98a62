#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

// yoke bench average: a group of peers as threads of this process, over encrypted loopback connections.
int bench_average(const CommandLine& line);

}  // namespace yoke::cli
