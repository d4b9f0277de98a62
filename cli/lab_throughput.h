// yoke lab throughput: samples per second against the batch size, and the roofline that bounds it.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

extern const std::vector<LabOption> kThroughputOptions;
void run_lab_throughput(Lab& lab);

}  // namespace yoke::cli
