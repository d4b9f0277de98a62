#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int show_config(const CommandLine& line);
int show_config_keys(const CommandLine& line);

// The contents of docs/configuration.md, below its introduction.
std::string configuration_reference();

}  // namespace yoke::cli
