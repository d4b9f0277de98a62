// All commands behind one main function: for `yoke`, and for programs with their own models and data.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace yoke::cli {

// Runs a command that needs LibTorch, given the words after the program's name.
using TorchCommands = std::function<int(const std::vector<std::string>& words)>;

// Validates and runs the command line; returns the exit code.
int run_commands(int argc, char** argv, const TorchCommands& torch);

}  // namespace yoke::cli
