// The memory of this machine.
#pragma once

#include <cstdint>

namespace yoke {

// Bytes that this process may use: the machine's, or less where its control group (a container, a Slurm job)
// has a limit.
int64_t usable_memory_bytes();

}  // namespace yoke
