// JSON from files we do not trust: an object, no key twice, bounded depth, whole input used.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace yoke::checkpoint::format {

// JSON libraries take a NUL byte for the end of input and keep the last of two equal keys without a word;
// both let one file mean two things. `name` is the file, for errors. Throws ConfigError.
nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::string& name);

// Throws ConfigError where `text` does not begin with '{' or holds a NUL byte. `offset` is where it stands in
// the file.
void check_json_frame(std::string_view text, size_t offset, const std::string& name);

}  // namespace yoke::checkpoint::format
