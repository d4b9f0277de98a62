// `yoke partition`: assigns the nodes of a network to machines.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int partition_graph(const CommandLine& line);

}  // namespace yoke::cli
