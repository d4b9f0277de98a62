// yoke topo show|predict: machines, links, rings, and the time of collectives on them.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int show_topology(const CommandLine& line);
int predict_topology(const CommandLine& line);

}  // namespace yoke::cli
