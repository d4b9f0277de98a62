// Parts of the story that two ways of telling it share.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/data/loader.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {

engine::LoopPlan loop_plan(const RunConfig& config, const engine::Worker& worker, const data::Loader& loader,
                           int64_t replicas);

// The state to go on from, or nothing for a fresh start.
std::optional<checkpoint::Loaded> find_resume(const TrainArguments& arguments,
                                              const std::filesystem::path& out, const checkpoint::Team& team);

// yoke train with parallel.sync = "ps", as a worker.
int run_train_with_servers(const CommandLine& line, Configuration& configuration);

}  // namespace yoke::cli
