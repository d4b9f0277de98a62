#include "yoke/checkpoint/format/strict_json.h"

#include <set>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"

namespace yoke::checkpoint::format {

void check_json_frame(std::string_view text, size_t offset, const std::string& name) {
  if (text.empty() || text[0] != '{') {
    throw ConfigError("{}: byte {} is not '{{', the start of the JSON. Is it the right file?", name, offset);
  }
  if (size_t at = text.find('\0'); at != std::string_view::npos) {
    throw ConfigError("{}: NUL byte inside the JSON at byte {}.", name, offset + at);
  }
}

nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::string& name) {
  using Event = nlohmann::json::parse_event_t;
  check_json_frame(text, 0, name);
  std::vector<std::set<std::string>> keys;  // of the currently open objects
  auto watch = [&](int depth, Event event, nlohmann::json& parsed) {
    if ((event == Event::object_start || event == Event::array_start) && depth >= max_depth) {
      throw ConfigError("{}: JSON nested deeper than {} levels.", name, max_depth);
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw ConfigError("{}: the key \"{}\" appears twice.", name, parsed.get<std::string>());
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError("{}: not valid JSON: {}.", name, json_problem(error));
  }
}

}  // namespace yoke::checkpoint::format
