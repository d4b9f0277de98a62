#include "yoke/metrics/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::metrics {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path_.parent_path(), error);
    if (error) {
      throw ConfigError("{}: cannot make this folder: {}. Choose another with --out.dir.",
                        path_.parent_path().string(), error.message());
    }
  }
  fd_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd_) {
    throw ConfigError("{}: cannot write: {}. Choose another folder with --out.dir.", path_.string(),
                      describe_errno(errno));
  }
}

void AppendFile::write(std::string_view piece) {
  while (!piece.empty()) {
    ssize_t put = ::write(fd_.get(), piece.data(), piece.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      throw ConfigError(
          "{}: cannot write: {}. Make room, then start the same command again; it goes on from "
          "the last checkpoint.",
          path_.string(), describe_errno(errno));
    }
    piece.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace yoke::metrics
