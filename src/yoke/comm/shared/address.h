// Whose memory can be touched by whom, and under which address: the one difference between ranks that are
// threads of a process and ranks that are processes of a machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "yoke/comm/buffer.h"

namespace yoke::comm::shared {

// A place in memory that means the same on every rank.
struct Location {
  int32_t heap = -1;  // -1: only its owner can touch it
  int32_t unused = 0;
  uint64_t offset = 0;
  bool reachable() const { return heap >= 0; }
};

// Thread-safe.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;
  virtual const std::string& name() const = 0;  // "local", "shm"

  // Of this rank's memory, for the others.
  virtual Location locate(const void* data, size_t bytes) const = 0;
  // Of a reachable location, for this rank. Throws CommError when it is not inside of shared memory.
  virtual std::byte* resolve(const Location& location, size_t bytes) const = 0;
  // Zeroed memory that all ranks can reach, at least 64-aligned. Throws CommError when there is no more.
  virtual Memory allocate(size_t bytes) = 0;
  // The same for those who hold the space anyway: the memory does not keep it alive.
  virtual Memory allocate_inside(size_t bytes) = 0;
  // Whether memory that its owner has freed can still be touched without harm by ranks that have not noticed.
  virtual bool outlives_owner() const = 0;

  // Keeps `memory` until `users` (inside of it) has become 0.
  void retire(Memory memory, std::atomic<uint32_t>& users);

 protected:
  // Lets go of what was retired and is no longer used.
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
