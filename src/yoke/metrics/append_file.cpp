#include "yoke/metrics/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"

namespace yoke::metrics {
namespace {

constexpr size_t kMostHeld = size_t{16} << 20;

}  // namespace

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path_.parent_path(), error);
    if (error) {
      throw ConfigError("{}: cannot create this folder: {}. Choose another with --out.dir.",
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
      throw ConfigError("{}: cannot write: {}. Make room on that disk.", path_.string(),
                        describe_errno(errno));
    }
    piece.remove_prefix(static_cast<size_t>(put));
  }
}

AppendFile::~AppendFile() {
  if (!fd_ || held_.empty() || write_held()) return;
  log::error("{}: the last {} could not be written and are lost.", path_.string(),
             format_bytes(static_cast<double>(held_.size())));
}

void AppendFile::keep(std::string_view piece) {
  const bool fits = held_.size() + piece.size() <= kMostHeld;
  if (fits) held_ += piece;
  if (write_held()) warned_ = false;
  if (!fits && std::exchange(full_, true) == false)
    log::warn("{}: {} are held in memory; later records are left out until there is room.", path_.string(),
              format_bytes(static_cast<double>(held_.size())));
  if (held_.empty()) full_ = false;
}

// One call, which writes everything or, on a nearly full disk, a part that is removed again.
bool AppendFile::write_held() {
  struct stat before {};
  const bool known = ::fstat(fd_.get(), &before) == 0;
  try {
    write(held_);
    held_.clear();
    return true;
  } catch (const ConfigError& error) {
    const bool whole = known && ::ftruncate(fd_.get(), before.st_size) == 0;
    if (!std::exchange(warned_, true))
      log::warn("{} The run goes on; records are held in memory{}.", error.what(),
                whole ? "" : ", the file may end in a part of one");
    return false;
  }
}

}  // namespace yoke::metrics
