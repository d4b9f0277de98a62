// `yoke lab sparse`: sparse logistic regression by delayed block proximal gradient.
#pragma once

#include "cli/command_line.h"

namespace yoke::cli {

int run_lab_sparse(const CommandLine& line);

}  // namespace yoke::cli
