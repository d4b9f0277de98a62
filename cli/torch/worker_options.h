#pragma once

#include "cli/run_config.h"
#include "yoke/comm/join.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {

// The part of a configuration that makes a worker, for a process that trains alone.
engine::WorkerOptions worker_options(const RunConfig& config);

// The same for one rank of a world.
engine::WorkerOptions worker_options(const RunConfig& config, World& world);

// What a worker of parameter servers is told; its messenger comes later. Throws ConfigError.
parallel::PsSetup ps_setup(const RunConfig& config, int workers);

// Meets the other ranks as [parallel] says: on GPUs over NCCL unless told otherwise. A process that was
// started alone is a world of one. Throws ConfigError where parallel.data is not their number.
World join_world(const RunConfig& config);

}  // namespace yoke::cli
