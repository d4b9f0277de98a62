// Single-producer, single-consumer ring of frames in shared memory.
#pragma once

#include <cstring>

#include "yoke/comm/shared/control.h"

namespace yoke::comm::shared {

// Header of a message. A large payload is not in the ring but in a stream (transfers.h).
struct Frame {
  uint32_t tag = 0;
  uint32_t in_ring = 0;  // 1: the payload follows in the ring
  uint64_t bytes = 0;    // of the payload
  uint64_t fingerprint = 0;
  Location stream;
  Descriptor descriptor;
};

inline constexpr size_t kLargestInRing = 16 << 10;

// Bytes that a frame and its payload occupy.
inline uint64_t room_for(const Frame& frame) {
  return (sizeof(Frame) + (frame.in_ring ? frame.bytes : 0) + 63) / 64 * 64;
}

// Copies to and from the ring at a position, wrapping around its end. No synchronisation: push() and the
// reader publish positions.
inline void write_at(Ring& ring, uint64_t at, const void* from, size_t bytes) {
  if (bytes == 0) return;
  size_t begin = at % kRingBytes, first = bytes < kRingBytes - begin ? bytes : kRingBytes - begin;
  std::memcpy(ring.data + begin, from, first);
  std::memcpy(ring.data, static_cast<const std::byte*>(from) + first, bytes - first);
}
inline void read_at(const Ring& ring, uint64_t at, void* to, size_t bytes) {
  if (bytes == 0) return;
  size_t begin = at % kRingBytes, first = bytes < kRingBytes - begin ? bytes : kRingBytes - begin;
  std::memcpy(to, ring.data + begin, first);
  std::memcpy(static_cast<std::byte*>(to) + first, ring.data, bytes - first);
}

// Returns false if there is no room now.
inline bool push(Ring& ring, const Frame& frame, const void* payload) {
  uint64_t at = ring.written.load(std::memory_order_relaxed);
  if (at + room_for(frame) - ring.read.load(std::memory_order_acquire) > kRingBytes) return false;
  write_at(ring, at, &frame, sizeof(Frame));
  if (frame.in_ring) write_at(ring, at + sizeof(Frame), payload, frame.bytes);
  ring.written.store(at + room_for(frame), std::memory_order_release);
  return true;
}

}  // namespace yoke::comm::shared
