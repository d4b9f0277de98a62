// yoke bench ps: time per update, staleness and idle time of a synchronisation rule.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int bench_ps(const CommandLine& line);

}  // namespace yoke::cli
