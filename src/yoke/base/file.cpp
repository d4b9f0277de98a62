#include "yoke/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "yoke/base/error.h"

namespace yoke {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error) {
  throw ConfigError("{}: {}: {}. Check the path and its permissions.", path.string(), what,
                    describe_errno(error));
}

FileDescriptor open_or_throw(const std::filesystem::path& path, int flags, mode_t mode = 0) {
  int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) fail(flags & O_WRONLY ? "cannot write" : "cannot open", path, errno);
  return FileDescriptor(fd);
}

// Next to `target`, under a unique name: threads, and processes of other machines with the same pid, may
// write the same target at the same time. Removed unless it is renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) {
    static std::atomic<uint64_t> made{0};
    for (int error = EEXIST; error == EEXIST;) {
      path_ = target;
      path_ += fmt::format(".tmp{}-{}", ::getpid(), made.fetch_add(1, std::memory_order_relaxed));
      fd_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
      error = fd_.get() < 0 ? errno : 0;
      if (error != 0 && error != EEXIST) fail("cannot write", target, error);
    }
  }
  ~TemporaryFile() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return fd_.get(); }
  void rename_to(const std::filesystem::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) fail("cannot rename to", target, errno);
    renamed_ = true;
  }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  bool renamed_ = false;
};

size_t regular_size(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail("cannot stat", path, errno);
  if (S_ISDIR(info.st_mode)) fail("cannot read", path, EISDIR);
  return static_cast<size_t>(info.st_size);
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::string read_file(const std::filesystem::path& path, int64_t limit) {
  FileDescriptor fd = open_or_throw(path, O_RDONLY);
  size_t size = regular_size(fd.get(), path);
  if (size > static_cast<size_t>(limit)) {
    throw ConfigError("{}: {} bytes, more than the limit of {} for this kind of file. Is it the right file?",
                      path.string(), size, limit);
  }
  std::string content;
  content.reserve(size);
  char chunk[65536];
  while (true) {
    ssize_t got = ::read(fd.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read", path, errno);
    if (got == 0) return content;
    content.append(chunk, static_cast<size_t>(got));
    if (content.size() > static_cast<size_t>(limit)) fail("cannot read", path, EFBIG);
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  TemporaryFile temporary(path);
  while (!content.empty()) {
    ssize_t put = ::write(temporary.fd(), content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write", path, errno);
    content.remove_prefix(static_cast<size_t>(put));
  }
  if (::fsync(temporary.fd()) != 0) fail("cannot sync", path, errno);
  temporary.rename_to(path);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  FileDescriptor fd = open_or_throw(path, O_RDONLY);
  size_ = regular_size(fd.get(), path);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) fail("cannot map", path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<std::byte*>(data_), size_);
}

void sync_directory(const std::filesystem::path& path) {
  FileDescriptor fd = open_or_throw(path, O_RDONLY | O_DIRECTORY);
  if (::fsync(fd.get()) != 0) fail("cannot sync", path, errno);
}

}  // namespace yoke
