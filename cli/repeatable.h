#pragma once

#include <string>

#include "cli/run_config.h"

namespace yoke::cli {

// The setting that prevents a run from being bit-identical in repetitions or after a resume, on any device,
// and why; empty if there is none.
std::string unrepeatable(const RunConfig& config);

// Throws ConfigError for train.deterministic = true with such a setting.
void check_deterministic(const RunConfig& config);

}  // namespace yoke::cli
