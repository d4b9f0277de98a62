// All commands behind one main function: for `yoke`, and for programs with their own models and data.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace yoke::cli {

// Runs a command that needs LibTorch, given the words after the program's name.
using TorchCommands = std::function<int(const std::vector<std::string>& words)>;

// Validates and runs the command line; returns the exit code. `zygote`: program to fork ranks from (see
// cluster::LaunchOptions); empty: none.
int run_commands(int argc, char** argv, const TorchCommands& torch, const std::string& zygote = "");

}  // namespace yoke::cli
