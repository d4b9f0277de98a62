// Memory available to this process, as counted by the kernel.
#pragma once

#include <cstdint>
#include <string_view>

namespace yoke::compute {

struct MemoryRoom {
  int64_t free = 0;
  int64_t total = 0;
};

// A line such as "VmHWM:     1234 kB" of /proc/self/status, in bytes; 0 if missing.
int64_t status_bytes(std::string_view key);

// Resident set of the process. Cheap.
int64_t resident_bytes();

// The tightest of: available memory of the machine, limit of the control group, limit of the address space
// (`ulimit -v`).
MemoryRoom host_memory_room();

}  // namespace yoke::compute
