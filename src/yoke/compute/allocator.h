// Memory that stays with the process from step to step.
#pragma once

#include <cstdint>

namespace yoke::compute {

// Makes freed memory stay in this process: LibTorch's CPU tensors get an allocator that keeps large blocks
// for the next tensor of about that size, on huge pages where the kernel grants them, and malloc stops
// returning memory to the kernel. A training step frees and takes the same sizes over and over, and without
// this every large tensor costs a page fault for each 4 KB in every step.
//
// To be called by a program at its start, before it makes tensors; calling it again does nothing. The price:
// memory of large tensors is not returned until the process ends or release_kept_memory() is called.
void keep_freed_memory();

// Returns the blocks that no tensor uses to the kernel, and says how many bytes that were.
int64_t release_kept_memory();

// From now on kept blocks are returned, as many as needed, before a new one would make the process's resident
// set exceed `bytes`; 0: no limit. What tensors use is never refused.
void limit_kept_memory(int64_t bytes);

}  // namespace yoke::compute
