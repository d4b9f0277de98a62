// yoke lab pipeline: every schedule on the virtual clock.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kPipelineOptions;
void run_lab_pipeline(Lab& lab);

}  // namespace yoke::cli
