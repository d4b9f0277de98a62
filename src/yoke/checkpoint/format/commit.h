// Saves one checkpoint atomically, even if the power fails.
//
// Everything is written to step-N.tmp and synced; COMMITTED comes last; then the folder is renamed to step-N
// and the parent synced. Older checkpoints are not touched before that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "yoke/checkpoint/format/durable_file.h"
#include "yoke/checkpoint/format/manifest.h"
#include "yoke/checkpoint/format/safetensors_writer.h"

namespace yoke::checkpoint::format {

class Commit {
 public:
  // Creates `dir` if missing, and an empty dir/step-N.tmp. One process at a time saves into `dir`. All
  // functions throw ConfigError that names path and reason.
  Commit(std::filesystem::path dir, int64_t step, Failpoint failpoint = nullptr);
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;
  // Without commit(): removes the partial files to free their space.
  ~Commit();

  void add(const std::string& file, std::vector<TensorView> tensors,
           const std::map<std::string, std::string>& metadata = {}, const Readiness& ready = nullptr);

  // A file that another process has written into the same folder (write_part). Throws ConfigError if it is
  // missing or has another size: the ranks must share a file system.
  void adopt(const FileEntry& file);
  void add_text(const std::string& file, const std::string& text);

  // Once, after the last add(). Returns the checkpoint's folder. Replaces a checkpoint of the same step.
  std::filesystem::path commit(nlohmann::json state);

 private:
  void write_text(const char* name, const std::string& text);
  void take_name();
  void point(const char* what) const;

  std::filesystem::path dir_, temporary_, final_;
  Manifest manifest_;
  Failpoint failpoint_;
  bool committed_ = false;
};

// Writes one rank's file of a shared checkpoint, while the Commit of another process is open.
FileEntry write_part(const std::filesystem::path& dir, int64_t step, const std::string& file,
                     std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata = {},
                     const Failpoint& failpoint = nullptr, const Readiness& ready = nullptr);

}  // namespace yoke::checkpoint::format
