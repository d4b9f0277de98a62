// One run at a time in a folder.
#pragma once

#include <filesystem>

#include "yoke/base/file.h"

namespace yoke::checkpoint::format {

// Holds FOLDER/.lock (flock) until destroyed; the kernel lets go of it when the process dies, however. The
// file tells people who holds it, and stays. Readers need no lock: what is written is renamed into place.
class FolderLock {
 public:
  // Makes the folder where it is missing. Waits a moment for a process that is just ending. Throws
  // ConfigError: the folder cannot be written, or another process holds the lock, with its pid and host. A
  // file system without locks is warned of.
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  FileDescriptor file_;
};

}  // namespace yoke::checkpoint::format
