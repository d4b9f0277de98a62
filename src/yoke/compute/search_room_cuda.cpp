#include "yoke/compute/search_room_cuda.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "yoke/compute/device_cuda.h"
#include "yoke/compute/search_room.h"

namespace yoke::compute::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

bool is_first(const std::string& operation) {
  static std::mutex mutex;
  static std::unordered_set<std::string> searched;
  std::lock_guard lock(mutex);
  return searched.insert(operation).second;
}

bool is_captured() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

int64_t reserved_bytes(c10::DeviceIndex device) {
  constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator::getDeviceStats(device).reserved_bytes[all].current;
}

// While it exists, the allocator takes at most `bytes` from the device. The search halves its wish until it
// is granted.
class MemoryBound {
 public:
  MemoryBound(c10::DeviceIndex device, int64_t bytes)
      : device_(device), before_(allocator::getMemoryFraction(device)) {
    const double total = static_cast<double>(device_memory(device).total);
    allocator::setMemoryFraction(std::min(before_, static_cast<double>(bytes) / total), device);
  }
  ~MemoryBound() { allocator::setMemoryFraction(before_, device_); }
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;

 private:
  c10::DeviceIndex device_;
  double before_;
};

bool fits_in_room(c10::DeviceIndex device, int64_t least, const std::function<void()>& convolve) {
  const int64_t left = peak_memory_bytes(device) - memory_in_use_bytes(device);
  // Freed memory that is cached would come on top of the bound.
  allocator::emptyCache();
  const MemoryBound bound(device, reserved_bytes(device) + std::max(left, least));
  try {
    convolve();
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

}  // namespace

void within_search_room(const std::string& operation, const torch::Tensor& x, int64_t least,
                        const std::function<void()>& convolve) {
  const bool searches =
      at::globalContext().benchmarkCuDNN() && searches_are_bounded() && !is_captured() && is_first(operation);
  if (!searches || !fits_in_room(x.device().index(), least, convolve)) convolve();
}

}  // namespace yoke::compute::cuda
