// yoke lab memory: activations along a step with recomputation, and what ZeRO leaves on a rank.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kMemoryOptions;
void run_lab_memory(Lab& lab);

}  // namespace yoke::cli
