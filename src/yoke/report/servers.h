// The section of a report about parameter servers.
#pragma once

#include <string>

#include "yoke/report/run_folder.h"

namespace yoke::report {

// Loss against time, staleness, and how workers and servers spent their time, from the scheduler's statistics
// (ps.json in the run's folder). Empty for runs without servers, and if the file cannot be read.
std::string servers_section(const RunFolder& run);

}  // namespace yoke::report
