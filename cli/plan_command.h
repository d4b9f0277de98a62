// `yoke plan`.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int plan_pipeline(const CommandLine& line);

}  // namespace yoke::cli
