// yoke lab stragglers: the rules of parameter servers, on a virtual clock and in training.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

void run_lab_stragglers(Lab& lab);

}  // namespace yoke::cli
