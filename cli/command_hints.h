// Suggestions for words that are not commands or options.
#pragma once

#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace CLI {
class App;
}

namespace yoke::cli {

// Throws ConfigError for the first unknown word in the place of a command.
void check_commands(const CLI::App& app, const std::vector<std::string>& words);

// Whether every configuration key is an option of `command` ("bench step").
bool reads_configuration(const std::string& command);

// After a parse with unused words: throws ConfigError for the first of them.
[[noreturn]] void refuse_extras(const CLI::App& app, const config::Schema& schema);

}  // namespace yoke::cli
