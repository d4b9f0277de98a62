// yoke lab stragglers: the same model under each rule of parameter servers.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int run_lab_stragglers(const CommandLine& line);

}  // namespace yoke::cli
