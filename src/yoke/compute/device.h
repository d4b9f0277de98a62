// The device a run computes on, and its memory.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "yoke/compute/memory_room.h"

namespace yoke::compute {

// "cpu", "cuda", "cuda:1". Throws ConfigError naming what is missing (built without CUDA, no driver, no such
// device) and how to get it.
torch::Device resolve_device(const std::string& name);

// "NVIDIA H200", or the processor's name.
std::string device_name(const torch::Device& device);

// Threads for operators; 0 takes every core this process may use, or its part where `ranks` processes share
// them.
void set_threads(int64_t threads, int64_t ranks = 1);

// Highest memory use since the start or the last reset: resident set of this process on the CPU (its use now,
// where the kernel forbids the reset), the caching allocator's peak on CUDA.
int64_t peak_memory_bytes(const torch::Device& device);
void reset_peak_memory(const torch::Device& device);

// Memory use now, counted likewise: the process's resident set, or what tensors have on CUDA.
int64_t memory_in_use_bytes(const torch::Device& device);

// What this process could still take on the device, and all there is; freed memory that LibTorch or Yoke keep
// counts as free. On the CPU the tightest of the machine, the control group and the process's limits.
MemoryRoom memory_room(const torch::Device& device);

// Returns freed memory that LibTorch or Yoke keep for the next tensor.
void release_freed_memory(const torch::Device& device);

// Waits until the device has done what it was told. Nothing to wait for on the CPU.
void synchronize(const torch::Device& device);

}  // namespace yoke::compute
