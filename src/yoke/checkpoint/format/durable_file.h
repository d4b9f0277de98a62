// A new file, digested while it is written, and safe on disk once sync() returns. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "yoke/base/file.h"
#include "yoke/checkpoint/format/digest.h"

namespace yoke::checkpoint::format {

// Called with the name of each point at which a crash would leave the disk in a different state
// ("model.safetensors: written"). Tests throw or exit in it; nullptr otherwise.
using Failpoint = std::function<void(std::string_view point)>;

// Called before memory up to `end` is read: waits until it is filled. nullptr: everything is.
using Readiness = std::function<void(const void* end)>;

// Large files bypass the page cache (O_DIRECT), where a checkpoint would only evict the data set; one chunk
// is written while the next is gathered and digested.
class DurableFile {
 public:
  // Creates or truncates `path`. Reserves `expected_bytes`, so that a full disk is noticed before the work.
  // All functions throw ConfigError that names path and reason; for a full disk also the free space.
  explicit DurableFile(std::filesystem::path path, uint64_t expected_bytes = 0, Failpoint failpoint = nullptr,
                       Readiness ready = nullptr);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  // Zero-copy if a large piece is page-aligned in memory and block-aligned in the file. `data` is not needed
  // after it returns.
  void write(const void* data, uint64_t bytes);
  // Once, after the last write().
  void sync();

  uint64_t bytes() const { return bytes_; }
  // Of all bytes written.
  std::string digest() const { return digest_.hex(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Buffer = std::unique_ptr<std::byte, Free>;

  void open(uint64_t expected_bytes);
  void write_in_place(const std::byte* data, uint64_t bytes);
  void gather(const std::byte* data, uint64_t bytes);
  void send_gathered();
  void wait_for_disk();
  void write_to_disk(const std::byte* data, uint64_t bytes);
  void use_page_cache();
  void point(std::string_view what) const;

  std::filesystem::path path_;
  FileDescriptor fd_;
  Digest digest_;
  Failpoint failpoint_;
  Readiness ready_;
  Buffer gathering_, travelling_;
  uint64_t gathered_ = 0;  // bytes in gathering_
  uint64_t bytes_ = 0;
  uint64_t on_disk_ = 0;       // used by the write in flight
  std::future<void> pending_;  // last: waits for that write before other members are destroyed
};

// Throws ConfigError: what failed on `path`, errno's text, and the next step.
[[noreturn]] void fail_on_disk(std::string_view what, const std::filesystem::path& path, int error);

}  // namespace yoke::checkpoint::format
