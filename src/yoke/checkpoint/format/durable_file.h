// A new file that is digested while it is written and safe on disk once sync() has returned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "yoke/base/file.h"
#include "yoke/checkpoint/format/digest.h"

namespace yoke::checkpoint::format {

// Called with the name of each point at which a crash would leave the disk in another state
// ("model.safetensors: written"). Tests throw or exit in it; null otherwise.
using Failpoint = std::function<void(std::string_view point)>;

class DurableFile {
 public:
  // Creates or empties `path`. `expected_bytes` are reserved at once, so that a full disk shows before the
  // work. Every function throws ConfigError that names path and reason; for a full disk also the free space.
  explicit DurableFile(std::filesystem::path path, uint64_t expected_bytes = 0,
                       Failpoint failpoint = nullptr);

  void write(const void* data, uint64_t bytes);
  void sync();

  uint64_t bytes() const { return bytes_; }
  // Of all bytes written.
  std::string digest() const { return digest_.hex(); }

 private:
  void write_chunk(const char* data, uint64_t bytes);
  void start_writeback();
  void point(std::string_view what) const;

  std::filesystem::path path_;
  FileDescriptor fd_;
  Digest digest_;
  Failpoint failpoint_;
  uint64_t bytes_ = 0;
  uint64_t flushed_ = 0;
};

// Throws ConfigError: what could not be done to `path`, errno's text, and what to do about it.
[[noreturn]] void fail_on_disk(std::string_view what, const std::filesystem::path& path, int error);

}  // namespace yoke::checkpoint::format
