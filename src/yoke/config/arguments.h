// Extracts configuration keys from command-line words.
#pragma once

#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::config {

// Removes `--section.key VALUE`, `--section.key=VALUE`, `--section.key` and `--no-section.key` (booleans
// only) and `--set section.key=VALUE` from `words`, in the order they take effect. Other words stay. Throws
// ConfigError for a dotted option of no section.
std::vector<Override> take_overrides(const Schema& schema, std::vector<std::string>& words);

}  // namespace yoke::config
