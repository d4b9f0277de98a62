// parallel.plan: stages and replicas from a plan, made now or read from a file.
#pragma once

#include "cli/run_config.h"
#include "yoke/comm/join.h"

namespace yoke::cli {

// Puts what parallel.plan says into the configuration: stages, their blocks and replicas; a plan of one stage
// is data parallelism. "auto": rank 0 profiles the model, and the planner decides for as many devices as
// there are ranks. Collective. Throws ConfigError for a plan of another model or another number of devices.
void follow_plan(RunConfig& config, World& world);

}  // namespace yoke::cli
