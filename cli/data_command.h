// yoke data tokens: text files become token files.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int make_tokens(const CommandLine& line);

}  // namespace yoke::cli
