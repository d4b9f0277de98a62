#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int show_config(const CommandLine& line);
int show_config_keys(const CommandLine& line);

// The page docs/configuration.md is this, below its introduction.
std::string configuration_reference();

}  // namespace yoke::cli
