// The memory of this machine.
#pragma once

#include <cstdint>

namespace yoke {

// Bytes this process may use: the machine's memory, or less if its control group (a container, a Slurm job)
// has a limit.
int64_t usable_memory_bytes();

}  // namespace yoke
