// yoke ps: looks at a running job with parameter servers, and changes it.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int show_ps_top(const CommandLine& line);
int end_ps_member(const CommandLine& line);  // a server or a worker

}  // namespace yoke::cli
