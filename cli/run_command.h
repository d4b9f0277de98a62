#pragma once

#include "cli/command_line.h"
#include "cli/run_flags.h"
#include "yoke/cluster/launcher/launcher.h"

namespace yoke::cli {

int run_on_ranks(const CommandLine& line);

// The job described by the flags. Throws ConfigError.
cluster::LaunchOptions launch_options(const RunFlags& flags);

}  // namespace yoke::cli
