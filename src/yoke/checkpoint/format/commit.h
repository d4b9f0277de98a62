// Saves one checkpoint so that it is there whole or not at all, whenever the power fails.
//
// Everything goes into step-N.tmp and is synced; COMMITTED comes last; then the folder gets its name step-N
// and the parent is synced. An older checkpoint is not touched before that.
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
  // Makes `dir` where it is missing, and an empty dir/step-N.tmp. One process at a time saves into `dir`.
  // Every function throws ConfigError that names path and reason.
  Commit(std::filesystem::path dir, int64_t step, Failpoint failpoint = nullptr);
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;
  // Without commit() before: removes what was written, so that its space is free again.
  ~Commit();

  void add(const std::string& file, std::vector<TensorView> tensors,
           const std::map<std::string, std::string>& metadata = {}, const Readiness& ready = nullptr);

  // A file that somebody else has written into the same folder (write_part). Throws ConfigError where it is
  // not there with its size: ranks must see one file system.
  void adopt(const FileEntry& file);
  void add_text(const std::string& file, const std::string& text);

  // Once, after the last add(). Returns the checkpoint's folder. A checkpoint of the same step is replaced.
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

// One rank's file of a checkpoint that several write, while the Commit of another process is open.
FileEntry write_part(const std::filesystem::path& dir, int64_t step, const std::string& file,
                     std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata = {},
                     const Failpoint& failpoint = nullptr, const Readiness& ready = nullptr);

}  // namespace yoke::checkpoint::format
