#include "yoke/compute/device_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <mutex>

namespace yoke::compute::cuda {
namespace {

// The allocator knows its devices only after LibTorch has initialised CUDA.
c10::DeviceIndex ready(int index) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return static_cast<c10::DeviceIndex>(index);
}

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

auto stats_of(int index) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(ready(index));
}

}  // namespace

bool built() {
  return true;
}

int device_count() {
  return c10::cuda::device_count();
}

bool has_tf32() {
  int count = device_count();
  for (int i = 0; i < count; ++i) {
    if (at::cuda::getDeviceProperties(ready(i))->major < 8) return false;
  }
  return count > 0;
}

std::string device_name(int index) {
  return at::cuda::getDeviceProperties(ready(index))->name;
}

DeviceMemory device_memory(int index) {
  c10::cuda::CUDAGuard guard(ready(index));
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

int64_t peak_memory_bytes(int index) {
  return stats_of(index).allocated_bytes[kAll].peak;
}

int64_t memory_in_use_bytes(int index) {
  return stats_of(index).allocated_bytes[kAll].current;
}

MemoryRoom memory_room(int index) {
  c10::cuda::CUDAGuard guard(ready(index));
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  auto stats = stats_of(index);
  int64_t cached = stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
  return {static_cast<int64_t>(free) + cached, static_cast<int64_t>(total)};
}

void release_freed_memory() {
  c10::cuda::CUDACachingAllocator::emptyCache();
}

void reset_peak_memory(int index) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(ready(index));
}

void synchronize(int index) {
  c10::cuda::CUDAGuard guard(ready(index));
  c10::cuda::device_synchronize();
}

std::optional<uint64_t> random_offset_in_capture(int index) {
  c10::cuda::CUDAGuard guard(ready(index));
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None)
    return std::nullopt;
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(static_cast<c10::DeviceIndex>(index));
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get<at::CUDAGeneratorImpl>()->philox_cuda_state(0).offset_intragraph_;
}

}  // namespace yoke::compute::cuda
