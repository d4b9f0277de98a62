#pragma once

#include <string>

#include "cli/run_config.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {

// What a run that resumes from `loaded` has in common with an undisturbed one: the same bits, or why not.
std::string resume_note(const RunConfig& config, const checkpoint::Loaded& loaded,
                        const engine::Worker& worker, int ranks);

}  // namespace yoke::cli
