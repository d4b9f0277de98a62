// A file that grows by whole pieces, each handed to the system at once.
#pragma once

#include <filesystem>
#include <string_view>

#include "yoke/base/file.h"

namespace yoke::metrics {

// Every function throws ConfigError naming the path, a full disk included.
class AppendFile {
 public:
  // Opens `path` for appending; makes it and its folders where they are missing.
  explicit AppendFile(std::filesystem::path path);

  // After a failure the file may end in a part of `piece`.
  void write(std::string_view piece);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
};

}  // namespace yoke::metrics
