#include "yoke/checkpoint/format/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/units.h"

namespace yoke::checkpoint::format {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;       // digested while it is in the cache, then written
constexpr uint64_t kWriteback = uint64_t{16} << 20;  // the disk starts on this much while we go on

}  // namespace

void fail_on_disk(std::string_view what, const std::filesystem::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    std::error_code ignored;
    auto space = std::filesystem::space(path.parent_path(), ignored);
    throw ConfigError("{}: {}: {} ({} free on that disk). Free some space or set out.dir to another disk.",
                      path.string(), what, describe_errno(error),
                      ignored ? "unknown" : format_bytes(static_cast<double>(space.available)));
  }
  throw ConfigError("{}: {}: {}. Check the disk and the folder's permissions, or set another out.dir.",
                    path.string(), what, describe_errno(error));
}

DurableFile::DurableFile(std::filesystem::path path, uint64_t expected_bytes, Failpoint failpoint)
    : path_(std::move(path)), failpoint_(std::move(failpoint)) {
  fd_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd_) fail_on_disk("cannot create", path_, errno);
  point("created");
  if (expected_bytes == 0) return;
  // KEEP_SIZE: a torn file must also be a short one. File systems that cannot reserve find out while writing.
  int error =
      ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(expected_bytes)) == 0 ? 0 : errno;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    fail_on_disk(fmt::format("cannot reserve {}", format_bytes(static_cast<double>(expected_bytes))), path_,
                 error);
  }
}

void DurableFile::write(const void* data, uint64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    uint64_t now = std::min(bytes, kChunk);
    digest_.update(next, now);
    write_chunk(next, now);
    start_writeback();
    next += now;
    bytes -= now;
  }
  point("written to");
}

void DurableFile::write_chunk(const char* data, uint64_t bytes) {
  while (bytes > 0) {
    ssize_t put = ::write(fd_.get(), data, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_on_disk(fmt::format("cannot write at byte {}", bytes_), path_, errno);
    if (put == 0) fail_on_disk(fmt::format("cannot write at byte {}", bytes_), path_, EIO);
    data += put;
    bytes -= static_cast<uint64_t>(put);
    bytes_ += static_cast<uint64_t>(put);
  }
}

void DurableFile::start_writeback() {
  if (bytes_ - flushed_ < kWriteback) return;
  // Only a hint: what it cannot do, sync() does, and reports.
  ::sync_file_range(fd_.get(), static_cast<off_t>(flushed_), static_cast<off_t>(bytes_ - flushed_),
                    SYNC_FILE_RANGE_WRITE);
  flushed_ = bytes_;
}

void DurableFile::sync() {
  point("before sync");
  if (::fsync(fd_.get()) != 0) fail_on_disk("cannot sync", path_, errno);
  point("synced");
}

void DurableFile::point(std::string_view what) const {
  if (failpoint_) failpoint_(fmt::format("{}: {}", path_.filename().string(), what));
}

}  // namespace yoke::checkpoint::format
