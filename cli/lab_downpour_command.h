// yoke lab downpour: the methods of DistBelief on the same model: who reaches an accuracy first.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int run_lab_downpour(const CommandLine& line);

}  // namespace yoke::cli
