#include "yoke/comm/shared/address.h"

#include <utility>

namespace yoke::comm::shared {

void AddressSpace::retire(Memory memory, std::atomic<uint32_t>& users) {
  {
    std::lock_guard lock(mutex_);
    retired_.push_back({std::move(memory), &users});
  }
  sweep();
}

void AddressSpace::sweep() {
  std::vector<Retired> unused;  // destroyed after the lock is released: freeing may call sweep() again
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < retired_.size();) {
    if (retired_[i].users->load(std::memory_order_acquire) != 0) {
      ++i;
      continue;
    }
    unused.push_back(std::move(retired_[i]));
    retired_[i] = std::move(retired_.back());
    retired_.pop_back();
  }
}

}  // namespace yoke::comm::shared
