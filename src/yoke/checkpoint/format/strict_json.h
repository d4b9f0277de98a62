// Strict parser for untrusted JSON: an object, no duplicate keys, bounded depth, no trailing input.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace yoke::checkpoint::format {

// JSON libraries treat a NUL byte as the end of input and silently keep the last of two equal keys; both make
// a file ambiguous. `name` is the file, for errors. Throws ConfigError.
nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::string& name);

// Throws ConfigError unless `text` starts with '{' and contains no NUL byte. `offset`: its position in the
// file.
void check_json_frame(std::string_view text, size_t offset, const std::string& name);

}  // namespace yoke::checkpoint::format
