// Allows one run at a time per folder.
#pragma once

#include <filesystem>
#include <string>

#include "yoke/base/file.h"

namespace yoke::checkpoint::format {

// Holds FOLDER/.lock (flock) until destroyed; the kernel releases it when the process dies. The file names
// its holder and is not removed. Readers need no lock: files are renamed into place.
class FolderLock {
 public:
  // Creates the folder if missing. Waits about a second for a process that is just ending. Throws
  // ConfigError: the folder is not writable, or another process holds the lock (with its pid and host). Logs
  // a warning if the file system has no locks. `setting`: configuration key of the folder, for errors.
  explicit FolderLock(const std::filesystem::path& folder, const std::string& setting = "out.dir");

 private:
  FileDescriptor file_;
};

}  // namespace yoke::checkpoint::format
