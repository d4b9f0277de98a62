// yoke ps join: a server joins a running job.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int join_as_ps_server(const CommandLine& line);

// The configuration file of the run that line.ps names, or the one that the user gave instead. Throws
// ConfigError if there is none.
std::string ps_config_file(const CommandLine& line);

}  // namespace yoke::cli
