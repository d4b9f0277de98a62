// yoke lab batch: loss against epochs and time for batch sizes and learning rates, and the noise scale.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kBatchOptions;
void run_lab_batch(Lab& lab);

}  // namespace yoke::cli
