// yoke lab collectives: which algorithm is fastest, measured here and predicted for a cluster.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kCollectivesOptions;
void run_lab_collectives(Lab& lab);

}  // namespace yoke::cli
