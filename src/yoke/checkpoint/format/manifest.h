// manifest.json: the files of a checkpoint, and the run's state other than tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::checkpoint::format {

struct FileEntry {
  std::string name;  // plain file name inside the checkpoint's folder
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

// Parses and validates. Throws ConfigError that names `name` and the key: unknown version, negative step,
// file names that leave the folder or are duplicated, invalid sizes or digests.
Manifest parse_manifest(std::string_view text, const std::string& name);

// "" or the problem.
std::string validate(const Manifest& manifest);

}  // namespace yoke::checkpoint::format
