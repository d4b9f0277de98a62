#include "yoke/base/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace yoke {

int64_t usable_memory_bytes() {
  int64_t bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  // Version 2 and version 1 of control groups; "max" and absurdly large numbers mean no limit.
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::ifstream(file) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace yoke
