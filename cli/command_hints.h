// What was probably meant by words that no command takes.
#pragma once

#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace CLI {
class App;
}

namespace yoke::cli {

// Throws ConfigError for the first word that stands where a command is wanted and is none.
void check_commands(const CLI::App& app, const std::vector<std::string>& words);

// Whether every key of the configuration is an option of `command` ("bench step").
bool reads_configuration(const std::string& command);

// After a parse that left words over: throws ConfigError for the first of them.
[[noreturn]] void refuse_extras(const CLI::App& app, const config::Schema& schema);

}  // namespace yoke::cli
