#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

// yoke bench scaling: one job for each number of ranks, and what they measured side by side.
int bench_scaling(const CommandLine& line);

}  // namespace yoke::cli
