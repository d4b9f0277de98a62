#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

// yoke collab watch: a run as its meeting point sees it, on the terminal, as JSON, or as a page.
int watch_collab(const CommandLine& line);

}  // namespace yoke::cli
