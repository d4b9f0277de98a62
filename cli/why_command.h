// yoke why: which rank diverged first in a failed job.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int explain_failure(const CommandLine& line);

}  // namespace yoke::cli
