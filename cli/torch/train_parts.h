// Parts of the story that two ways of telling it share.
#pragma once

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/data/loader.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {

// How a run resumes from `done`, with the loader at its position. `steps_per_batch`: steps for a batch of
// each replica, where one is not one (parameter servers).
engine::LoopPlan loop_plan(const RunConfig& config, const engine::Worker& worker, const data::Loader& loader,
                           int64_t replicas, const engine::Progress& done, double steps_per_batch = 1);

// Says what is likely not what was wanted.
void give_hints(const RunConfig& config);

// yoke train with parallel.sync = "ps", as a worker.
int run_train_with_servers(const CommandLine& line, Configuration& configuration);

}  // namespace yoke::cli
