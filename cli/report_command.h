#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int write_report(const CommandLine& line);

}  // namespace yoke::cli
