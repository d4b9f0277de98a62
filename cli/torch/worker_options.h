#pragma once

#include <functional>

#include "cli/run_config.h"
#include "yoke/engine/worker.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

// Worker options of a configuration, for a process that trains alone.
engine::WorkerOptions worker_options(const RunConfig& config);

// The same for one rank of a job. `init`: weights to start from; empty: initialised.
engine::WorkerOptions worker_options(const RunConfig& config, parallel::Membership& member,
                                     const std::string& init = "");

// Joins the other ranks according to [parallel]: on GPUs over NCCL by default. A process that was started
// directly is a world of one. Sets the run's folder. Throws ConfigError if the axes of the mesh do not
// multiply to the number of ranks. `prepare`: as in JoinRequest.
parallel::Membership join_job(RunConfig& config, std::function<void()> prepare = {});

}  // namespace yoke::cli
