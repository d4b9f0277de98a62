// The memory of messengers that are processes of one machine: a desk for each rank, and a ring of bytes for
// each pair and direction. Part of shm_transport.cpp.
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
// Small enough to stay in the cache of both cores, large enough that neither waits for the other often.
inline constexpr size_t kRingBytes = 512 << 10;
// A large payload is shown to its reader in pieces of this size, so that both copy at the same time.
inline constexpr size_t kPiece = 32 << 10;
static_assert((kRingBytes & (kRingBytes - 1)) == 0);

// Heads and payloads begin at multiples of this, so that payloads can be computed with where they lie.
inline constexpr size_t kAlign = 64;
inline constexpr size_t padded(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}
inline constexpr size_t kHeadRoom = padded(sizeof(WireHead));

struct alignas(kLine) Desk {
  std::atomic<int64_t> pid;
  Word joined;
  Word left;
  Word life;                  // of its owner: how often it was started again
  alignas(kLine) Word inbox;  // changes when its owner should look
  Word asleep;
};

// A stream of bytes from one rank to another.
struct alignas(kLine) Ring {
  std::atomic<uint64_t> written;
  Word life;    // of the reader for whom the writer has emptied this ring and its way back
  Word closed;  // the writer has given the reader up: it reads and writes nothing more
  alignas(kLine) std::atomic<uint64_t> read;
  Word writer_waits;
};

// Mappings begin at pages, which are this large on some machines.
inline constexpr size_t kPage = 64 << 10;

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

// The bytes of a ring twice, one behind the other: what goes round its end lies in one piece.
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

// Desks and rings, then the bytes of the rings.
inline size_t bytes_before_data(int size) {
  auto ranks = static_cast<size_t>(size);
  return (ranks * sizeof(Desk) + ranks * ranks * sizeof(Ring) + kPage - 1) / kPage * kPage;
}

inline size_t bytes_for(int size) {
  auto ranks = static_cast<size_t>(size);
  return bytes_before_data(size) + ranks * ranks * kRingBytes;
}

}  // namespace yoke::comm::messages
