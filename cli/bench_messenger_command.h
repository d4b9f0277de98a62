// yoke bench messenger: requests a second and bandwidth between two processes of this machine.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int bench_messenger(const CommandLine& line);

}  // namespace yoke::cli
