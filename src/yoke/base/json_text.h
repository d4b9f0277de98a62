// JSON that was written by others: errors in our words, never in the library's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace yoke {

// The document in `text`. Throws ConfigError naming `file`, the line, and what is wrong there.
nlohmann::json parse_json(std::string_view text, const std::string& file);

// What went wrong, without the library's tag: "key 'rank' not found".
std::string json_problem(const nlohmann::json::exception& error);

}  // namespace yoke
