#pragma once

#include <string>

#include "cli/run_config.h"

namespace yoke::cli {

// The setting that keeps a run from giving the same bits twice, or after a resume, on whatever device, and
// why; empty where there is none.
std::string unrepeatable(const RunConfig& config);

// Throws ConfigError for train.deterministic = true with such a setting.
void check_deterministic(const RunConfig& config);

}  // namespace yoke::cli
