// A file that grows by whole pieces, each written with one system call.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "yoke/base/file.h"

namespace yoke::metrics {

// write() throws ConfigError naming the path, also for a full disk; keep() does not throw.
class AppendFile {
 public:
  // Opens `path` for appending; creates it and its folders if missing. Throws ConfigError.
  explicit AppendFile(std::filesystem::path path);
  AppendFile(AppendFile&&) = default;
  AppendFile& operator=(AppendFile&&) = default;
  // Tries once more to write what keep() holds; a loss is logged.
  ~AppendFile();

  // After a failure the file may end with a part of `piece`.
  void write(std::string_view piece);

  // For runs that must not end because of a full disk: pieces that cannot be written are held in memory, up
  // to 16 MB, and written before the next one. The file contains whole pieces only. Warns once per outage.
  void keep(std::string_view piece);

  const std::filesystem::path& path() const { return path_; }

 private:
  bool write_held();

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::string held_;
  bool warned_ = false;
  bool full_ = false;  // of held_: the loss of records was logged
};

}  // namespace yoke::metrics
