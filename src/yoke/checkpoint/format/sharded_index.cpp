#include "yoke/checkpoint/format/sharded_index.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/strict_json.h"

namespace yoke::checkpoint::format {

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return std::ranges::none_of(name, [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

std::set<std::string> ShardedIndex::files() const {
  std::set<std::string> result;
  for (const auto& [tensor, file] : weight_map) result.insert(file);
  return result;
}

ShardedIndex parse_sharded_index(std::string_view text, const std::string& name) {
  // "metadata" is free-form in practice; only its depth is limited.
  nlohmann::json json = parse_strict_json(text, 16, name);
  auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) {
    throw ConfigError("{}: no \"weight_map\" object. Is it a model.safetensors.index.json?", name);
  }
  ShardedIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) throw ConfigError("{}: weight_map[\"{}\"] is not a file name.", name, tensor);
    auto file_name = file.get<std::string>();
    if (!is_plain_file_name(file_name)) {
      throw ConfigError(
          "{}: weight_map[\"{}\"] = \"{}\": only names of files in the same folder are accepted.", name,
          tensor, file_name);
    }
    index.weight_map.emplace(tensor, std::move(file_name));
  }
  return index;
}

}  // namespace yoke::checkpoint::format
