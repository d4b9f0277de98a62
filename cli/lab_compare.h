// yoke lab compare: one model on one cluster under every strategy; time and bytes to an accuracy.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kCompareOptions;
void run_lab_compare(Lab& lab);

}  // namespace yoke::cli
