// A run of a lab: `yoke train` with words of the lab's own, checked before anything starts.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/cluster/launcher/launcher.h"

namespace yoke::cli {

struct LabJob {
  RunConfig config;
  cluster::LaunchOptions launch;  // its ranks print nothing
};

// `words`: as typed after `yoke`. `line`: of the lab. Throws ConfigError where the ranks would refuse it.
LabJob lab_job(const CommandLine& line, const std::vector<std::string>& words);

}  // namespace yoke::cli
