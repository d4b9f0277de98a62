// The CUDA part of device.h: device_cuda.cpp, or device_cuda_absent.cpp in builds without CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "yoke/compute/memory_room.h"

namespace yoke::compute::cuda {

bool built();        // whether this build has CUDA parts
int device_count();  // 0 without a driver
bool has_tf32();     // every device supports tf32

// Requires: built(), index < device_count().
std::string device_name(int index);
struct DeviceMemory {
  int64_t free = 0, total = 0;  // bytes
};
DeviceMemory device_memory(int index);
int64_t peak_memory_bytes(int index);
void reset_peak_memory(int index);
int64_t memory_in_use_bytes(int index);
MemoryRoom memory_room(int index);
void release_freed_memory();
void synchronize(int index);

// While the current stream of device `index` is being captured into a graph: random numbers drawn per thread
// within the graph. Empty if nothing is being captured.
std::optional<uint64_t> random_offset_in_capture(int index);

}  // namespace yoke::compute::cuda
