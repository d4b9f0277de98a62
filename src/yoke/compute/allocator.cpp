#include "yoke/compute/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::compute {
namespace {

constexpr size_t kSmall = 256 << 10;  // smaller ones are malloc's business
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kWaste = 8;  // a block may be larger than asked for by one part in so many

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Sizes are rounded up to an eighth of their power of two, so that nearly equal ones share blocks.
size_t block_size(size_t bytes) {
  return rounded(bytes, std::max<size_t>(std::bit_floor(bytes) / kWaste, 4096));
}

// Whole huge pages where the block is large enough for one.
void* map_block(size_t bytes) {
  size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* raw = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  if (slack == 0) return raw;
  auto begin = reinterpret_cast<uintptr_t>(raw);
  uintptr_t aligned = rounded(begin, kHugePage);
  if (aligned > begin) munmap(raw, aligned - begin);
  uintptr_t end = begin + bytes + slack;
  if (end > aligned + bytes) munmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
  void* block = reinterpret_cast<void*>(aligned);
  madvise(block, bytes, MADV_HUGEPAGE);  // a wish: without it the block works as well, on small pages
  return block;
}

class KeepingAllocator final : public c10::Allocator {
 public:
  explicit KeepingAllocator(c10::Allocator* small) : small_(small) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kSmall) return small_->allocate(bytes);
    void* block = take(block_size(bytes));
    return {block, block, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  int64_t release() {
    std::lock_guard lock(mutex_);
    int64_t released = 0;
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) {
        munmap(block, size);
        sizes_.erase(block);
        released += static_cast<int64_t>(size);
      }
    }
    free_.clear();
    return released;
  }

  void put(void* block) {
    std::lock_guard lock(mutex_);
    free_[sizes_.at(block)].push_back(block);
  }

  static KeepingAllocator* instance;

 private:
  static void give_back(void* block) {
    if (block != nullptr) instance->put(block);
  }

  void* take(size_t size) {
    {
      std::lock_guard lock(mutex_);
      auto found = free_.lower_bound(size);
      for (; found != free_.end() && found->first <= size + size / kWaste; ++found) {
        if (found->second.empty()) continue;
        void* block = found->second.back();
        found->second.pop_back();
        return block;
      }
    }
    void* block = map_block(size);
    if (block == nullptr && release() > 0) block = map_block(size);
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "out of memory: no ", size,
                     " bytes for a tensor on the CPU. Use a smaller batch, or train.recompute = \"blocks\".");
    std::lock_guard lock(mutex_);
    sizes_.emplace(block, size);
    return block;
  }

  c10::Allocator* small_;
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  std::unordered_map<void*, size_t> sizes_;
};

KeepingAllocator* KeepingAllocator::instance = nullptr;

}  // namespace

void keep_freed_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: tensors in static objects give their memory back after main has ended.
    KeepingAllocator::instance = new KeepingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(KeepingAllocator::instance, /*priority=*/1);
#if defined(__GLIBC__)
    // For what does not come from LibTorch's allocator: workspaces of oneDNN and the BLAS.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 16 << 20);
#endif
  });
}

int64_t release_kept_memory() {
  int64_t released = KeepingAllocator::instance == nullptr ? 0 : KeepingAllocator::instance->release();
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  return released;
}

}  // namespace yoke::compute
