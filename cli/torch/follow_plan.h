// parallel.plan and parallel.partition: stages or parts, computed now or read from a file.
#pragma once

#include "cli/run_config.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

// Applies parallel.plan to the configuration: stages, their blocks and replicas; a plan of one stage is data
// parallelism. "auto": rank 0 profiles the model, and the planner uses as many devices as there are ranks.
// Likewise parallel.partition: the part of each node, and parallel.pipeline as the number of parts.
// Collective. Throws ConfigError for a plan of another model or number of devices.
void follow_plan(RunConfig& config, parallel::Membership& world);

}  // namespace yoke::cli
