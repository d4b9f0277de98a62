// `yoke partition`: which machine computes which nodes of a network.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int partition_graph(const CommandLine& line);

}  // namespace yoke::cli
