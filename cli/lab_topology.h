// yoke lab topology: machines drawn, with the rings found in them.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kTopologyOptions;
void run_lab_topology(Lab& lab);

}  // namespace yoke::cli
