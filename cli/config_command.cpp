#include "cli/config_command.h"

#include <fmt/core.h>

#include "cli/output.h"
#include "cli/presets.h"
#include "cli/run_config.h"
#include "yoke/base/text.h"

namespace yoke::cli {
namespace {

nlohmann::json to_json(const config::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* text = std::get_if<config::Text>(&value)) return text->content;
  nlohmann::json array = nlohmann::json::array();
  for (const config::Value& element : std::get<config::Array>(value)) array.push_back(to_json(element));
  return array;
}

std::string accepted_text(const config::Field& field) {
  std::vector<std::string> shown;
  for (const std::string& choice : field.accepted) shown.push_back(choice.empty() ? "\"\"" : choice);
  return shown.empty() ? field.type : join(shown, " ");
}

}  // namespace

int show_config(const CommandLine& line) {
  Configuration configuration;
  configuration.load(line.config_file, line.overrides);
  if (!line.json) {
    fmt::print("{}", configuration.schema.to_toml(/*origins=*/true));
    return 0;
  }
  nlohmann::json keys = nlohmann::json::array();
  for (const config::Entry& entry : configuration.schema.entries()) {
    keys.push_back({{"key", entry.key()}, {"value", to_json(entry.field.get())}, {"origin", entry.origin}});
  }
  print_json({{"keys", keys}});
  return 0;
}

int show_config_keys(const CommandLine& line) {
  Configuration configuration;
  if (!line.json) {
    fmt::print("{}", configuration_reference());
    return 0;
  }
  nlohmann::json keys = nlohmann::json::array();
  for (const config::Entry& entry : configuration.schema.entries()) {
    nlohmann::json key = {{"key", entry.key()},
                          {"type", entry.field.type},
                          {"default", to_json(entry.initial)},
                          {"help", entry.field.help}};
    if (!entry.field.accepted.empty()) key["accepted"] = entry.field.accepted;
    keys.push_back(key);
  }
  print_json({{"keys", keys}});
  return 0;
}

std::string configuration_reference() {
  Configuration configuration;
  std::string out;
  std::string section;
  for (const config::Entry& entry : configuration.schema.entries()) {
    if (entry.section != section) {
      section = entry.section;
      out += fmt::format("{}## [{}]\n\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("- `{} = {}` ({}): {}\n", entry.key(), config::value_text(entry, entry.initial),
                       accepted_text(entry.field), entry.field.help);
  }
  return out + "\n## Presets of train.preset\n\n" + preset_reference(configuration.schema);
}

}  // namespace yoke::cli
