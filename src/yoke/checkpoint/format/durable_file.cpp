#include "yoke/checkpoint/format/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/units.h"

namespace yoke::checkpoint::format {
namespace {

constexpr uint64_t kChunk = uint64_t{4} << 20;
constexpr uint64_t kBlock = 4096;  // alignment and granularity of direct writes

}  // namespace

void fail_on_disk(std::string_view what, const std::filesystem::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    std::error_code ignored;
    auto space = std::filesystem::space(path.parent_path(), ignored);
    throw ConfigError("{}: {}: {} ({} free on the disk). Free some space or set out.dir to another disk.",
                      path.string(), what, describe_errno(error),
                      ignored ? "unknown" : format_bytes(static_cast<double>(space.available)));
  }
  throw ConfigError("{}: {}: {}. Check the disk and the folder's permissions, or set another out.dir.",
                    path.string(), what, describe_errno(error));
}

DurableFile::DurableFile(std::filesystem::path path, uint64_t expected_bytes, Failpoint failpoint,
                         Readiness ready)
    : path_(std::move(path)), failpoint_(std::move(failpoint)), ready_(std::move(ready)) {
  for (Buffer* buffer : {&gathering_, &travelling_}) {
    buffer->reset(static_cast<std::byte*>(std::aligned_alloc(kBlock, kChunk)));
    if (!*buffer) throw std::bad_alloc();
  }
  open(expected_bytes);
  point("created");
}

void DurableFile::open(uint64_t expected_bytes) {
  int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  // Not every file system supports O_DIRECT, and small files do not gain from it.
  if (expected_bytes >= kChunk) fd_ = FileDescriptor(::open(path_.c_str(), flags | O_DIRECT, 0644));
  if (!fd_) fd_ = FileDescriptor(::open(path_.c_str(), flags, 0644));
  if (!fd_) fail_on_disk("cannot create", path_, errno);
  if (expected_bytes == 0) return;
  // KEEP_SIZE: a torn file must also be a short one. If the file system cannot reserve, writing will find
  // out.
  int error =
      ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(expected_bytes)) == 0 ? 0 : errno;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    fail_on_disk(fmt::format("cannot reserve {}", format_bytes(static_cast<double>(expected_bytes))), path_,
                 error);
  }
}

void DurableFile::write(const void* data, uint64_t bytes) {
  if (fault::at(fault::Point::kCheckpointWrite) == fault::Effect::kError)
    fail_on_disk("cannot write (YOKE_FAULT)", path_, ENOSPC);
  const auto* next = static_cast<const std::byte*>(data);
  bool aligned = gathered_ % kBlock == 0 && reinterpret_cast<uintptr_t>(next) % kBlock == 0;
  uint64_t in_place = aligned && bytes >= kChunk ? bytes / kBlock * kBlock : 0;
  if (in_place > 0) write_in_place(next, in_place);
  gather(next + in_place, bytes - in_place);
  bytes_ += bytes;
  point("written to");
}

void DurableFile::write_in_place(const std::byte* data, uint64_t bytes) {
  if (gathered_ > 0) send_gathered();
  while (bytes > 0) {
    uint64_t now = std::min(bytes, 2 * kChunk);
    if (ready_) ready_(data + now);
    wait_for_disk();
    pending_ = std::async(std::launch::async, [this, data, now] { write_to_disk(data, now); });
    digest_.update(data, now);
    data += now;
    bytes -= now;
  }
  wait_for_disk();  // the memory belongs to the caller again
}

void DurableFile::gather(const std::byte* data, uint64_t bytes) {
  while (bytes > 0) {
    uint64_t now = std::min(bytes, kChunk - gathered_);
    if (ready_) ready_(data + now);
    std::memcpy(gathering_.get() + gathered_, data, now);
    digest_.update(gathering_.get() + gathered_, now);
    gathered_ += now;
    data += now;
    bytes -= now;
    if (gathered_ == kChunk) send_gathered();
  }
}

void DurableFile::send_gathered() {
  wait_for_disk();
  std::swap(gathering_, travelling_);
  uint64_t bytes = std::exchange(gathered_, 0);
  pending_ = std::async(std::launch::async, [this, bytes] { write_to_disk(travelling_.get(), bytes); });
}

void DurableFile::wait_for_disk() {
  if (pending_.valid()) pending_.get();
}

void DurableFile::write_to_disk(const std::byte* data, uint64_t bytes) {
  while (bytes > 0) {
    ssize_t put = ::write(fd_.get(), data, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && (::fcntl(fd_.get(), F_GETFL) & O_DIRECT) != 0) {
      use_page_cache();  // a larger block size than ours, or the rest of a short write
      continue;
    }
    if (put <= 0)
      fail_on_disk(fmt::format("cannot write at byte {}", on_disk_), path_, put < 0 ? errno : EIO);
    data += put;
    bytes -= static_cast<uint64_t>(put);
    on_disk_ += static_cast<uint64_t>(put);
  }
}

void DurableFile::use_page_cache() {
  int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) != 0)
    fail_on_disk("cannot change flags", path_, errno);
}

void DurableFile::sync() {
  wait_for_disk();
  use_page_cache();  // the end of the file is not a multiple of a block
  write_to_disk(gathering_.get(), gathered_);
  point("before sync");
  if (::fsync(fd_.get()) != 0) fail_on_disk("cannot sync", path_, errno);
  point("synced");
}

void DurableFile::point(std::string_view what) const {
  if (failpoint_) failpoint_(fmt::format("{}: {}", path_.filename().string(), what));
}

}  // namespace yoke::checkpoint::format
