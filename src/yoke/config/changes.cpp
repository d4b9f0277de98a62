#include "yoke/config/changes.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/text.h"

namespace yoke::config {

std::map<std::string, std::string> values_of(const std::string& toml) {
  std::map<std::string, std::string> values;
  std::string section;
  for (const std::string& line : split(toml, '\n')) {
    if (line.starts_with('[') && line.ends_with(']')) section = line.substr(1, line.size() - 2);
    size_t equals = line.find(" = ");
    if (equals == std::string::npos || section.empty()) continue;
    values[section + "." + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return values;
}

std::vector<std::string> changed_keys(const std::string& saved, const Schema& now,
                                      const std::vector<std::string>& ignored) {
  auto is_ignored = [&](const std::string& name) {
    return std::find(ignored.begin(), ignored.end(), name) != ignored.end();
  };
  const std::map<std::string, std::string> before = values_of(saved);
  std::vector<std::string> changes;
  for (const Entry& entry : now.entries()) {
    auto found = before.find(entry.key());
    if (found == before.end() || is_ignored(entry.section) || is_ignored(entry.key())) continue;
    std::string value = value_text(entry, entry.field.get());
    if (value != found->second)
      changes.push_back(fmt::format("{} {} -> {}", entry.key(), found->second, value));
  }
  return changes;
}

}  // namespace yoke::config
