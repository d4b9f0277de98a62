// Results and errors of all commands.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/command_line.h"

namespace yoke::cli {

// The single JSON document of a command run with --json.
void print_json(const nlohmann::json& document);

// Columns that a table on stdout may take; 0: as many as it likes, because stdout is no terminal.
int table_columns();

// Parses the command line, runs `command`, and turns exceptions into a message on stderr and an exit code.
int run_program(int argc, char** argv, const std::function<int(const CommandLine&)>& command);

}  // namespace yoke::cli
