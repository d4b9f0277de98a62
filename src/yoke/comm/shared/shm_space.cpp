#include "yoke/comm/shared/shm_space.h"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>

#include "yoke/base/error.h"

namespace yoke::comm::shared {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

ShmSpace::ShmSpace(std::span<const int> heaps, size_t heap_bytes, int rank)
    : heap_bytes_(heap_bytes), rank_(rank) {
  for (int file : heaps) {
    void* base = ::mmap(nullptr, heap_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (base == MAP_FAILED) {
      int error = errno;
      for (std::byte* heap : heaps_) ::munmap(heap, heap_bytes_);
      throw CommError("could not map a heap of {} bytes of address space: {}. Hint: check `ulimit -v`.",
                      heap_bytes_, describe_errno(error));
    }
    ::madvise(base, heap_bytes_, MADV_HUGEPAGE);  // if the kernel supports huge pages for memfd
    ::madvise(base, heap_bytes_, MADV_DONTDUMP);
    heaps_.push_back(static_cast<std::byte*>(base));
  }
  free_[0] = heap_bytes_;
}

ShmSpace::~ShmSpace() {
  for (std::byte* heap : heaps_) ::munmap(heap, heap_bytes_);
}

Location ShmSpace::locate(const void* data, size_t bytes) const {
  if (bytes == 0) return {rank_, 0, 0};  // an empty buffer is reachable for everybody
  auto* place = static_cast<const std::byte*>(data);
  for (size_t h = 0; h < heaps_.size(); ++h) {
    if (place < heaps_[h] || place >= heaps_[h] + heap_bytes_) continue;
    auto offset = static_cast<size_t>(place - heaps_[h]);
    if (bytes <= heap_bytes_ - offset) return {static_cast<int32_t>(h), 0, offset};
  }
  return {};
}

std::byte* ShmSpace::resolve(const Location& location, size_t bytes) const {
  bool inside = location.heap >= 0 && static_cast<size_t>(location.heap) < heaps_.size() &&
                bytes <= heap_bytes_ && location.offset <= heap_bytes_ - bytes;
  if (!inside)
    throw CommError("a rank referred to {} bytes at {} of heap {}, which is outside of the shared memory",
                    bytes, location.offset, location.heap);
  return heaps_[static_cast<size_t>(location.heap)] + location.offset;
}

Memory ShmSpace::allocate(size_t bytes) {
  Memory inside = allocate_inside(bytes);
  // The user's memory may outlive the backend.
  auto release = [self = shared_from_this(), held = inside.data](void*) mutable { held.reset(); };
  return {std::shared_ptr<void>(inside.data.get(), std::move(release)), bytes};
}

Memory ShmSpace::allocate_inside(size_t bytes) {
  sweep();
  size_t rounded = round_up(bytes > 0 ? bytes : 1, kPage);
  size_t offset = take(rounded);
  auto release = [space = weak_from_this(), offset, rounded](void*) {
    if (auto self = space.lock()) self->give_back(offset, rounded);
  };
  return {std::shared_ptr<void>(heaps_[static_cast<size_t>(rank_)] + offset, release), bytes};
}

// First fit. Large blocks are aligned to huge pages, so that the kernel can use them.
size_t ShmSpace::take(size_t bytes) {
  const size_t unit = bytes >= kHugePage ? kHugePage : kPage;
  std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    auto [begin, length] = *it;
    size_t offset = round_up(begin, unit);
    if (offset + bytes > begin + length) continue;
    free_.erase(it);
    if (offset > begin) free_[begin] = offset - begin;
    if (offset + bytes < begin + length) free_[offset + bytes] = begin + length - offset - bytes;
    return offset;
  }
  throw CommError(
      "no room for {} bytes in the shared heap of {} bytes. Hint: free other memory of this communicator.",
      bytes, heap_bytes_);
}

void ShmSpace::give_back(size_t offset, size_t bytes) {
  // Returns the pages to the system, so that the next allocation is zeroed.
  ::madvise(heaps_[static_cast<size_t>(rank_)] + offset, bytes, MADV_REMOVE);
  std::lock_guard lock(mutex_);
  auto next = free_.upper_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

}  // namespace yoke::comm::shared
