// yoke lab averaging: the same model under every way of averaging, on a slow link.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

void run_lab_averaging(Lab& lab);

}  // namespace yoke::cli
