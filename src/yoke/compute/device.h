// The device of a run, and its memory.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "yoke/compute/memory_room.h"

namespace yoke::compute {

// "cpu", "cuda", "cuda:1". Throws ConfigError naming what is missing (built without CUDA, no driver, no such
// device) and how to get it.
torch::Device resolve_device(const std::string& name);

// "NVIDIA H200", or the name of the CPU.
std::string device_name(const torch::Device& device);

// Intra-op threads; 0 uses every core available to this process, or its share if `ranks` processes share
// them.
void set_threads(int64_t threads, int64_t ranks = 1);

// Peak memory since the start or the last reset: resident set of this process on the CPU (the current value
// if the kernel forbids the reset), the caching allocator's peak on CUDA.
int64_t peak_memory_bytes(const torch::Device& device);
void reset_peak_memory(const torch::Device& device);

// Current memory use, counted likewise: the resident set, or tensors on CUDA.
int64_t memory_in_use_bytes(const torch::Device& device);

// Memory this process could still allocate on the device, and the total; freed memory cached by LibTorch or
// Yoke counts as free. On the CPU the tightest of machine, control group and process limits.
MemoryRoom memory_room(const torch::Device& device);

// Returns freed memory cached by LibTorch or Yoke.
void release_freed_memory(const torch::Device& device);

// Waits until the device has finished all submitted work. No-op on the CPU.
void synchronize(const torch::Device& device);

}  // namespace yoke::compute
