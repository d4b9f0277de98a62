// `yoke lab sparse`: sparse logistic regression by delayed block proximal gradient.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

void run_lab_sparse(Lab& lab);

}  // namespace yoke::cli
