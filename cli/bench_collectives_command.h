// yoke bench collectives: latency and bandwidth of any backend, operation and algorithm.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"

namespace yoke::cli {

int bench_collectives(const CommandLine& line);

// Measures on arguments.nproc ranks of this machine; rank 0 leaves its rows in `file`, which is read back:
// the "results" of the command. Throws what it would refuse, and Error if the ranks fail.
nlohmann::json measure_collectives(const BenchCollectivesArguments& arguments,
                                   const std::filesystem::path& file);

}  // namespace yoke::cli
