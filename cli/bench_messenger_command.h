// yoke bench messenger: requests per second and bandwidth between two processes of this machine.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int bench_messenger(const CommandLine& line);

}  // namespace yoke::cli
