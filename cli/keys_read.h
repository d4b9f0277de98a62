// Which configuration keys a command reads. A file may contain others; typed ones are refused.
#pragma once

#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::cli {

// `pattern`: a key, or "section.*".
bool key_matches(const std::string& pattern, const std::string& key);

// Throws ConfigError if `command` does not use these keys, or sets one itself.
void refuse_unread_keys(const std::string& command, const std::vector<config::Override>& typed);

}  // namespace yoke::cli
