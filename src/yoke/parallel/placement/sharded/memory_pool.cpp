#include "yoke/parallel/placement/sharded/memory_pool.h"

#include <algorithm>

namespace yoke::parallel {

comm::Memory MemoryPool::take(int64_t bytes) {
  auto best = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at)
    if (at->bytes >= static_cast<size_t>(bytes) && (best == free_.end() || at->bytes < best->bytes))
      best = at;
  if (best == free_.end() && !free_.empty()) {
    // All are too small: the largest of them makes room.
    auto largest = std::max_element(free_.begin(), free_.end(),
                                    [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    held_ -= static_cast<int64_t>(largest->bytes);
    free_.erase(largest);
    best = free_.end();
  }
  if (best != free_.end()) {
    comm::Memory found = std::move(*best);
    free_.erase(best);
    return found;
  }
  comm::Memory memory = comm_.allocate(static_cast<size_t>(bytes));
  memory.bytes = static_cast<size_t>(bytes);
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  return memory;
}

void MemoryPool::give(comm::Memory memory) {
  if (memory.data) free_.push_back(std::move(memory));
}

void MemoryPool::clear() {
  for (const comm::Memory& memory : free_) held_ -= static_cast<int64_t>(memory.bytes);
  free_.clear();
}

}  // namespace yoke::parallel
