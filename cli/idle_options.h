// Command-line options that would have no effect in combination with the others.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace yoke::cli {

// Why `option` ("--levels") has no effect in this command line; empty: it has one.
std::string idle_reason(const CommandLine& line, const std::string& option);

// Throws ConfigError that names the first of line.given without an effect, and why.
void refuse_idle_options(const CommandLine& line);

// Whether the table has conditions for this option.
bool is_conditional(const std::string& command, const std::string& option);

}  // namespace yoke::cli
