#include "yoke/compute/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "yoke/compute/memory_room.h"

namespace yoke::compute {
namespace {

constexpr size_t kHeader = 64;        // before every block: its size, and the alignment of what follows
constexpr size_t kSmall = 256 << 10;  // smaller ones are left to malloc
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kWaste = 8;  // a block may be larger than requested by one part in this many

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Sizes are rounded up to an eighth of their power of two, so that nearly equal ones share blocks.
size_t block_size(size_t bytes) {
  return rounded(bytes, std::max<size_t>(std::bit_floor(bytes) / kWaste, 4096));
}

// Whole huge pages if the block is large enough for one.
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
  madvise(block, bytes, MADV_HUGEPAGE);  // a hint: without it the block works as well, on small pages
  return block;
}

class KeepingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes + kHeader);
    if (data != nullptr) c10::profiledCPUMemoryReporter().New(data, bytes);  // MemoryMeter listens
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  // The largest first, until `wanted` bytes are returned.
  int64_t release(int64_t wanted = INT64_MAX) {
    std::lock_guard lock(mutex_);
    int64_t released = 0;
    while (!free_.empty() && released < wanted) {
      auto largest = std::prev(free_.end());
      if (!largest->second.empty()) {
        munmap(largest->second.back(), largest->first);
        released += static_cast<int64_t>(largest->first);
        largest->second.pop_back();
      }
      if (largest->second.empty()) free_.erase(largest);
    }
    return released;
  }

  void limit(int64_t bytes) { limit_ = bytes; }

  // Never destroyed: tensors in static objects free their memory after main has ended.
  static KeepingAllocator& instance() {
    static auto* allocator = new KeepingAllocator;
    return *allocator;
  }

 private:
  // Size from the header; 0 for a block from malloc.
  static size_t& size_of(void* block) { return *static_cast<size_t*>(block); }

  static void give_back(void* data) {
    if (data == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(data);
    void* block = static_cast<char*>(data) - kHeader;
    if (size_of(block) == 0) {
      std::free(block);
    } else {
      instance().keep(block);
    }
  }

  void keep(void* block) {
    std::lock_guard lock(mutex_);
    free_[size_of(block)].push_back(block);
  }

  void* take(size_t bytes) {
    void* block =
        bytes < kSmall ? std::aligned_alloc(kHeader, rounded(bytes, kHeader)) : take_large(block_size(bytes));
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "out of memory: cannot allocate ", bytes,
                     " bytes for a tensor on the CPU. Use a smaller batch, or train.recompute = \"blocks\".");
    if (bytes < kSmall) size_of(block) = 0;
    return static_cast<char*>(block) + kHeader;
  }

  void* take_large(size_t size) {
    if (void* block = take_kept(size)) return block;
    make_room(static_cast<int64_t>(size));
    void* block = map_block(size);
    if (block == nullptr && release() > 0) block = map_block(size);
    if (block != nullptr) size_of(block) = size;
    return block;
  }

  void make_room(int64_t size) {
    if (limit_ == 0) return;
    int64_t over = resident_bytes() + size - limit_;
    if (over > 0) release(over);
  }

  void* take_kept(size_t size) {
    std::lock_guard lock(mutex_);
    auto found = free_.lower_bound(size);
    for (; found != free_.end() && found->first <= size + size / kWaste; ++found) {
      if (found->second.empty()) continue;
      void* block = found->second.back();
      found->second.pop_back();
      return block;
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  std::atomic<int64_t> limit_ = 0;  // for the resident set of the process
};

std::atomic<bool> in_use = false;

}  // namespace

void keep_freed_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::SetCPUAllocator(&KeepingAllocator::instance(), /*priority=*/1);
    in_use = true;
#if defined(__GLIBC__)
    // For memory that does not come from LibTorch's allocator: workspaces of oneDNN and the BLAS.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 16 << 20);
#endif
  });
}

int64_t release_kept_memory() {
  int64_t released = in_use ? KeepingAllocator::instance().release() : 0;
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  return released;
}

void limit_kept_memory(int64_t bytes) {
  KeepingAllocator::instance().limit(bytes);
}

}  // namespace yoke::compute
