#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

// yoke bench scaling: one job per number of ranks, and a comparison of their results.
int bench_scaling(const CommandLine& line);

}  // namespace yoke::cli
