#include "yoke/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

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
    throw ConfigError("{}: {} bytes, more than the {} this kind of file may have. Is it the right file?",
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
  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp{}", ::getpid());
  {
    FileDescriptor fd = open_or_throw(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    while (!content.empty()) {
      ssize_t put = ::write(fd.get(), content.data(), content.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        int error = errno;
        ::unlink(temporary.c_str());
        fail("cannot write", path, error);
      }
      content.remove_prefix(static_cast<size_t>(put));
    }
    if (::fsync(fd.get()) != 0) fail("cannot sync", temporary, errno);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot rename to", path, errno);
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
