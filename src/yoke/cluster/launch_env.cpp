#include "yoke/cluster/launch_env.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

extern char** environ;

namespace yoke::cluster {

std::vector<config::Override> config_overrides() {
  std::vector<config::Override> overrides;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    std::string text = *variable;
    size_t equals = text.find('=');
    std::string name = text.substr(0, equals);
    size_t separator = name.find("__");
    if (name.rfind("YOKE_", 0) != 0 || separator == std::string::npos || equals == std::string::npos)
      continue;
    std::string key = name.substr(5, separator - 5) + "." + name.substr(separator + 2);
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
    overrides.push_back({key, text.substr(equals + 1), name});
  }
  std::sort(overrides.begin(), overrides.end(),
            [](const auto& a, const auto& b) { return a.origin < b.origin; });
  return overrides;
}

std::filesystem::path cache_folder() {
  auto set = [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? value : nullptr;
  };
  if (const char* cache = set("XDG_CACHE_HOME")) return std::filesystem::path(cache) / "yoke";
  if (const char* home = set("HOME")) return std::filesystem::path(home) / ".cache" / "yoke";
  return fmt::format("/tmp/yoke-{}", ::getuid());
}

}  // namespace yoke::cluster
