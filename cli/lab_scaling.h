// yoke lab scaling: speed-up against workers, strong and weak, and where the time goes.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kScalingOptions;
void run_lab_scaling(Lab& lab);

}  // namespace yoke::cli
