#include "yoke/checkpoint/format/manifest.h"

#include <set>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/digest.h"
#include "yoke/checkpoint/format/sharded_index.h"
#include "yoke/checkpoint/format/strict_json.h"

namespace yoke::checkpoint::format {
namespace {

constexpr const char* kFormat = "yoke-checkpoint";
constexpr int kMaxDepth = 64;

const nlohmann::json& member(const nlohmann::json& object, const char* key, const std::string& name) {
  auto found = object.find(key);
  if (found == object.end()) throw ConfigError("{}: \"{}\" is missing.", name, key);
  return *found;
}

int64_t whole_number(const nlohmann::json& object, const char* key, const std::string& name) {
  const nlohmann::json& value = member(object, key, name);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    throw ConfigError("{}: \"{}\" is not an integer in [0, 2^63).", name, key);
  }
  return value.get<int64_t>();
}

std::string text_of(const nlohmann::json& object, const char* key, const std::string& name) {
  const nlohmann::json& value = member(object, key, name);
  if (!value.is_string()) throw ConfigError("{}: \"{}\" is not a string.", name, key);
  return value.get<std::string>();
}

FileEntry parse_file(const nlohmann::json& json, const std::string& name) {
  if (!json.is_object()) throw ConfigError("{}: an entry of \"files\" is not an object.", name);
  return {text_of(json, "name", name), static_cast<uint64_t>(whole_number(json, "bytes", name)),
          text_of(json, "xxh3_128", name)};
}

}  // namespace

std::string to_json_text(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = manifest.version;
  json["step"] = manifest.step;
  json["files"] = nlohmann::ordered_json::array();
  for (const FileEntry& f : manifest.files) {
    nlohmann::ordered_json file;
    file["name"] = f.name;
    file["bytes"] = f.bytes;
    file["xxh3_128"] = f.digest;
    json["files"].push_back(std::move(file));
  }
  json["state"] = manifest.state;
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& name) {
  nlohmann::json json = parse_strict_json(text, kMaxDepth, name);
  if (text_of(json, "format", name) != kFormat)
    throw ConfigError("{}: not a manifest of a Yoke checkpoint.", name);
  Manifest manifest;
  manifest.version = whole_number(json, "version", name);
  // First: a later version may use the same keys differently.
  if (manifest.version != Manifest::kVersion) {
    throw ConfigError("{}: version {} of the checkpoint format; this program reads version {}.", name,
                      manifest.version, Manifest::kVersion);
  }
  manifest.step = whole_number(json, "step", name);
  const nlohmann::json& files = member(json, "files", name);
  if (!files.is_array()) throw ConfigError("{}: \"files\" is not a list.", name);
  for (const nlohmann::json& file : files) manifest.files.push_back(parse_file(file, name));
  manifest.state = member(json, "state", name);
  if (std::string problem = validate(manifest); !problem.empty()) throw ConfigError("{}: {}.", name, problem);
  return manifest;
}

std::string validate(const Manifest& manifest) {
  if (manifest.version != Manifest::kVersion) return fmt::format("version {}", manifest.version);
  if (manifest.step < 0) return fmt::format("step {}", manifest.step);
  if (!manifest.state.is_object()) return "\"state\" is not an object";
  std::set<std::string> seen{"manifest.json", "COMMITTED"};
  for (const FileEntry& f : manifest.files) {
    if (!is_plain_file_name(f.name)) return fmt::format("file name \"{}\" contains a path", f.name);
    if (!seen.insert(f.name).second) return fmt::format("file \"{}\" appears twice", f.name);
    if (!is_digest(f.digest))
      return fmt::format("file \"{}\": \"{}\" is no XXH3-128 digest", f.name, f.digest);
  }
  return "";
}

}  // namespace yoke::checkpoint::format
