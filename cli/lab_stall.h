// yoke lab stall: the share of time that data parallel training loses to communication.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kStallOptions;
void run_lab_stall(Lab& lab);

}  // namespace yoke::cli
