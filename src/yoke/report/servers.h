// The part of a report that tells about parameter servers.
#pragma once

#include <string>

#include "yoke/report/run_folder.h"

namespace yoke::report {

// Loss against time, staleness, and where the workers' time went, from what the scheduler counted (ps.json in
// the run's folder). Empty for runs without servers, and where the file cannot be read.
std::string servers_section(const RunFolder& run);

}  // namespace yoke::report
