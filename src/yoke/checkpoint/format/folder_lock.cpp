#include "yoke/checkpoint/format/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"

namespace yoke::checkpoint::format {
namespace {

namespace fs = std::filesystem;

constexpr double kPatience = 1;  // seconds

std::string own_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

std::string holder_of(int file) {
  std::array<char, 512> text{};
  ssize_t length = ::pread(file, text.data(), text.size(), 0);
  std::string holder = length > 0 ? trim(std::string_view(text.data(), static_cast<size_t>(length))) : "";
  return holder.empty() ? "another process" : holder;
}

// Whether we got it; errno says why not.
bool try_lock(int file) {
  Deadline deadline = Deadline::after(kPatience);
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    errno = EWOULDBLOCK;
  }
  return true;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder, const std::string& setting) {
  const std::string how = setting == "out.dir" ? " with --out.dir" : "";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw ConfigError("{} = \"{}\": cannot make the folder: {}. Choose another{}.", setting, folder.string(),
                      error.message(), how);
  file_ = FileDescriptor(::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_)
    throw ConfigError("{} = \"{}\": cannot write there: {}. Choose another{}.", setting, folder.string(),
                      describe_errno(errno), how);
  if (!try_lock(file_.get())) {
    if (errno == EWOULDBLOCK)
      throw ConfigError(
          "{} = \"{}\" is in use by {}: two runs would overwrite each other's checkpoints. Choose another{}, "
          "or "
          "stop that one first.",
          setting, folder.string(), holder_of(file_.get()), how);
    log::warn("{} = \"{}\" cannot be locked ({}): a second run there would not be noticed", setting,
              folder.string(), describe_errno(errno));
    return;
  }
  std::string name = own_name() + "\n";
  bool told = ::ftruncate(file_.get(), 0) == 0 &&
              ::pwrite(file_.get(), name.data(), name.size(), 0) == static_cast<ssize_t>(name.size());
  if (!told) log::warn("{}/.lock: cannot write: {}", folder.string(), describe_errno(errno));
}

}  // namespace yoke::checkpoint::format
