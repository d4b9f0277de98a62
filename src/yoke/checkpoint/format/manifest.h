// manifest.json: what a checkpoint consists of, and the run's state that is not tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::checkpoint::format {

struct FileEntry {
  std::string name;  // plain name inside the checkpoint's folder
  uint64_t bytes = 0;
  std::string digest;  // XXH3-128, 32 hexadecimal digits

  bool operator==(const FileEntry&) const = default;
};

struct Manifest {
  static constexpr int64_t kVersion = 1;

  int64_t version = kVersion;
  int64_t step = 0;
  std::vector<FileEntry> files;
  nlohmann::json state = nlohmann::json::object();  // data position, random states, scaler, configuration, …
};

std::string to_json_text(const Manifest& manifest);

// Reads and validates. Throws ConfigError that names `name` and the key: unknown version, negative step,
// names that leave the folder or stand twice, sizes and digests that are none.
Manifest parse_manifest(std::string_view text, const std::string& name);

// "" or what is wrong with it.
std::string validate(const Manifest& manifest);

}  // namespace yoke::checkpoint::format
