// yoke lab precision: speed, memory and loss in each number format, and what fp16 loses of gradients.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kPrecisionOptions;
void run_lab_precision(Lab& lab);

}  // namespace yoke::cli
