// yoke lab averaging: the same model under every way of averaging, on a slow link.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int run_lab_averaging(const CommandLine& line);

}  // namespace yoke::cli
