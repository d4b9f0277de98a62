// Memory layout of messengers between processes of one machine: one desk per rank, and one byte ring per
// ordered pair of ranks. Part of shm_transport.cpp.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/comm/messages/transport.h"
#include "yoke/comm/shared/futex.h"

namespace yoke::comm::messages {

using shared::Word;

inline constexpr size_t kLine = 128;
// Small enough for the caches of both cores, large enough that writer and reader rarely wait for each other.
inline constexpr size_t kRingBytes = 512 << 10;
// A large payload is published in pieces of this size, so that writer and reader copy concurrently.
inline constexpr size_t kPiece = 32 << 10;
static_assert((kRingBytes & (kRingBytes - 1)) == 0);

// Alignment of heads and payloads, so that payloads can be used in place by SIMD code.
inline constexpr size_t kAlign = 64;
inline constexpr size_t padded(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}
inline constexpr size_t kHeadRoom = padded(sizeof(WireHead));

// State of one rank. `inbox` is a futex.
struct alignas(kLine) Desk {
  std::atomic<int64_t> pid;
  Word joined;
  Word left;
  Word life;                  // restart count of its owner
  alignas(kLine) Word inbox;  // incremented to wake the owner
  Word asleep;                // the owner sleeps on `inbox`
};

// Single-producer, single-consumer byte ring from one rank to another. Positions count bytes since the start.
struct alignas(kLine) Ring {
  std::atomic<uint64_t> written;
  Word life;  // of the reader for which the writer has reset this ring and the opposite one
  alignas(kLine) std::atomic<uint64_t> read;
  Word writer_waits;  // the writer sleeps until there is room
};

// Mappings are page aligned; 64 KiB is the largest page size in use (aarch64).
inline constexpr size_t kPage = 64 << 10;

// A shared mapping of `bytes` bytes of `file`, unmapped by the destructor. Throws CommError.
class Mapping {
 public:
  Mapping(int file, size_t bytes) : bytes_(bytes) {
    base_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base_ == MAP_FAILED)
      throw CommError("mapping {} bytes of shared memory: {}", bytes, describe_errno(errno));
  }
  ~Mapping() { ::munmap(base_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* base() const { return static_cast<std::byte*>(base_); }

 private:
  void* base_;
  size_t bytes_;
};

// Maps the bytes of a ring twice in a row, so that data that wraps around is contiguous.
class Mirror {
 public:
  Mirror(int file, size_t offset) {
    void* room =
        ::mmap(nullptr, 2 * kRingBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) throw CommError("address space for a ring: {}", describe_errno(errno));
    base_ = static_cast<std::byte*>(room);
    for (std::byte* half : {base_, base_ + kRingBytes}) {
      void* got = ::mmap(half, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                         static_cast<off_t>(offset));
      if (got != MAP_FAILED) continue;
      int error = errno;
      ::munmap(base_, 2 * kRingBytes);
      throw CommError("mapping a ring: {}", describe_errno(error));
    }
  }
  Mirror(Mirror&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  ~Mirror() {
    if (base_ != nullptr) ::munmap(base_, 2 * kRingBytes);
  }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  std::byte* at(uint64_t position) const { return base_ + (position & (kRingBytes - 1)); }

 private:
  std::byte* base_ = nullptr;
};

// Layout: desks, rings, then the bytes of the rings.
inline size_t bytes_before_data(int size) {
  auto ranks = static_cast<size_t>(size);
  return (ranks * sizeof(Desk) + ranks * ranks * sizeof(Ring) + kPage - 1) / kPage * kPage;
}

inline size_t bytes_for(int size) {
  auto ranks = static_cast<size_t>(size);
  return bytes_before_data(size) + ranks * ranks * kRingBytes;
}

}  // namespace yoke::comm::messages
