#include "yoke/base/json_text.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke {

nlohmann::json parse_json(std::string_view text, const std::string& file) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    size_t end = std::min(text.size(), error.byte);
    auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), '\n');
    throw ConfigError("{}:{}: not valid JSON{}.", file, line,
                      error.byte > text.size() ? "; the file is truncated" : "");
  } catch (const nlohmann::json::exception& error) {  // numbers out of range
    throw ConfigError("{}: not valid JSON: {}.", file, json_problem(error));
  }
}

std::string json_problem(const nlohmann::json::exception& error) {
  std::string text = error.what();  // "[json.exception.out_of_range.403] key 'rank' not found"
  size_t end = text.rfind("[json.exception", 0) == 0 ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace yoke
