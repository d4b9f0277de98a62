#pragma once

#include <string>

#include "cli/run_config.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {

// Whether a run that resumes from `loaded` will be bit-identical to an uninterrupted one, or why not.
std::string resume_note(const RunConfig& config, const checkpoint::Loaded& loaded,
                        const engine::Worker& worker, int ranks);

}  // namespace yoke::cli
