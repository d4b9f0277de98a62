// How much memory this machine leaves to this process, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string_view>

namespace yoke::compute {

struct MemoryRoom {
  int64_t free = 0;
  int64_t total = 0;
};

// A line such as "VmHWM:     1234 kB" of /proc/self/status; 0 where there is none.
int64_t status_bytes(std::string_view key);

// The process's resident set. Cheap.
int64_t resident_bytes();

// The tightest of: the machine's available memory, the control group's limit, the limit of the address space
// (`ulimit -v`).
MemoryRoom host_memory_room();

}  // namespace yoke::compute
