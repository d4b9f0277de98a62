// yoke lab staleness: how stale gradients are under each rule, and what staleness costs.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kStalenessOptions;
void run_lab_staleness(Lab& lab);

}  // namespace yoke::cli
