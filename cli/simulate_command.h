// `yoke simulate`.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int simulate_schedule(const CommandLine& line);

}  // namespace yoke::cli
