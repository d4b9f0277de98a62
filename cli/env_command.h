#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

// What the environment says about this process: every variable that was recognised, and why.
int show_environment(const CommandLine& line);

}  // namespace yoke::cli
