#include "yoke/cluster/launch_env.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>

#include "yoke/cluster/identity.h"

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

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    std::string text = *variable;
    size_t equals = text.find('=');
    if (equals != std::string::npos) all.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return all;
}

// unsetenv() leaves the bytes where /proc/PID/environ shows them: overwrite them first.
std::optional<std::string> take_out_of_environment(const std::string& name) {
  char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  std::string text = value;
  ::explicit_bzero(value, text.size());
  ::unsetenv(name.c_str());
  return text;
}

Identity identify_from_environment() {
  return identify(environment_variable);
}

}  // namespace yoke::cluster
