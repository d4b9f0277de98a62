// Files, with errors that name the path. All functions throw ConfigError unless stated otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace yoke {

// Owns a file descriptor. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset() { *this = FileDescriptor(); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Reads the whole file. Refuses files above `limit` bytes before reading them.
std::string read_file(const std::filesystem::path& path, int64_t limit = int64_t{1} << 30);

// Writes a temporary file, syncs, renames: readers see the old or the new content, never a part.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// A whole file, mapped read-only. Empty files map to an empty view.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Makes directory entries durable.
void sync_directory(const std::filesystem::path& path);

}  // namespace yoke
