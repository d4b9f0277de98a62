// Which rank can access which memory, and at which address. This is the only difference between ranks that
// are threads of a process and ranks that are processes of a machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "yoke/comm/buffer.h"

namespace yoke::comm::shared {

// A memory location that has the same meaning on every rank.
struct Location {
  int32_t heap = -1;  // -1: accessible by its owner only
  int32_t unused = 0;
  uint64_t offset = 0;
  bool reachable() const { return heap >= 0; }
};

// Translates between addresses of this rank and locations. Thread-safe.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;
  virtual const std::string& name() const = 0;  // "local", "shm"

  // Location of this rank's memory, for other ranks. Not reachable if it is not shared.
  virtual Location locate(const void* data, size_t bytes) const = 0;
  // Address of a reachable location on this rank. Throws CommError if it is outside of shared memory.
  virtual std::byte* resolve(const Location& location, size_t bytes) const = 0;
  // Zeroed memory that all ranks can access, aligned to at least 64 bytes. Throws CommError if exhausted.
  virtual Memory allocate(size_t bytes) = 0;
  // Like allocate(), for callers that keep the space alive themselves: the memory does not own it.
  virtual Memory allocate_inside(size_t bytes) = 0;
  // Whether other ranks may still access memory after its owner has freed it, without faulting.
  virtual bool outlives_owner() const = 0;

  // Keeps `memory` until the counter `users`, which lies inside it, is 0.
  void retire(Memory memory, std::atomic<uint32_t>& users);

 protected:
  // Frees retired memory without users.
  void sweep();

 private:
  struct Retired {
    Memory memory;
    std::atomic<uint32_t>* users;
  };
  std::mutex mutex_;
  std::vector<Retired> retired_;
};

}  // namespace yoke::comm::shared
