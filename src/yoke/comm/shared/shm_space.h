// The heaps of all ranks of a machine, mapped into this process, and an allocator for this rank's own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "yoke/comm/shared/address.h"

namespace yoke::comm::shared {

class ShmSpace final : public AddressSpace, public std::enable_shared_from_this<ShmSpace> {
 public:
  // Maps one heap per file, each of `heap_bytes` (a multiple of 2 MiB); the files may be closed afterwards.
  // heaps[rank] is this rank's own. Throws CommError.
  ShmSpace(std::span<const int> heaps, size_t heap_bytes, int rank);
  ~ShmSpace() override;
  ShmSpace(const ShmSpace&) = delete;
  ShmSpace& operator=(const ShmSpace&) = delete;

  const std::string& name() const override { return name_; }
  Location locate(const void* data, size_t bytes) const override;
  std::byte* resolve(const Location& location, size_t bytes) const override;
  Memory allocate(size_t bytes) override;
  Memory allocate_inside(size_t bytes) override;
  bool outlives_owner() const override { return true; }

 private:
  // Allocator of this rank's heap: take() throws CommError if it is full, give_back() merges adjacent free
  // blocks.
  size_t take(size_t bytes);
  void give_back(size_t offset, size_t bytes);

  std::string name_ = "shm";
  size_t heap_bytes_;
  int rank_;
  std::vector<std::byte*> heaps_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset, bytes; adjacent blocks are merged
};

}  // namespace yoke::comm::shared
