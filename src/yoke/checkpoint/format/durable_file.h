// A new file that is digested while it is written and safe on disk once sync() has returned.
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

// Called with the name of each point at which a crash would leave the disk in another state
// ("model.safetensors: written"). Tests throw or exit in it; null otherwise.
using Failpoint = std::function<void(std::string_view point)>;

// Called before memory up to `end` is read: waits until it is filled. Null: everything is.
using Readiness = std::function<void(const void* end)>;

// Large files go past the page cache, whose pages a checkpoint would only take from the data set; one chunk
// is on its way to the disk while the next is gathered and digested.
class DurableFile {
 public:
  // Creates or empties `path`. `expected_bytes` are reserved at once, so that a full disk shows before the
  // work. Every function throws ConfigError that names path and reason; for a full disk also the free space.
  explicit DurableFile(std::filesystem::path path, uint64_t expected_bytes = 0, Failpoint failpoint = nullptr,
                       Readiness ready = nullptr);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  // Copies nothing where a large piece lies at a page's beginning in memory and comes to a block's beginning
  // in the file.
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
  uint64_t on_disk_ = 0;       // touched by the write that is under way
  std::future<void> pending_;  // last: waits for that write before the rest goes
};

// Throws ConfigError: what could not be done to `path`, errno's text, and what to do about it.
[[noreturn]] void fail_on_disk(std::string_view what, const std::filesystem::path& path, int error);

}  // namespace yoke::checkpoint::format
