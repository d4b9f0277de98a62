// Keeps freed memory in the process between steps.
#pragma once

#include <cstdint>

namespace yoke::compute {

// Keeps freed memory in this process: LibTorch's CPU tensors get an allocator that caches large blocks, on
// huge pages if the kernel grants them, and malloc stops returning memory to the kernel. A training step
// frees and allocates the same sizes repeatedly; without this every large tensor costs a page fault per 4 KB
// in every step.
//
// Call it at the start of a program, before creating tensors; repeated calls have no effect. The price:
// memory of large tensors is not returned until the process ends or release_kept_memory() is called.
void keep_freed_memory();

// Returns unused cached blocks to the kernel; returns their size in bytes.
int64_t release_kept_memory();

// From now on cached blocks are returned as needed before a new one would make the resident set exceed
// `bytes`; 0: no limit. Allocations are never refused.
void limit_kept_memory(int64_t bytes);

}  // namespace yoke::compute
