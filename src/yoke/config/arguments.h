// Finds configuration keys among command-line words.
#pragma once

#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::config {

// Takes `--section.key VALUE`, `--section.key=VALUE`, `--section.key` and `--no-section.key` (true or false
// fields only) and `--set section.key=VALUE` out of `words`, in the order they take effect. What is not a
// configuration key stays in `words`. Throws ConfigError for a dotted option that no section has.
std::vector<Override> take_overrides(const Schema& schema, std::vector<std::string>& words);

}  // namespace yoke::config
