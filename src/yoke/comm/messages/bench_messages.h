// Measures a messenger between two processes of this machine.
#pragma once

#include <cstddef>
#include <string>

namespace yoke::comm {

struct MessengerBench {
  std::string backend = "shm";  // or "tcp" (over loopback)
  size_t bytes = 0;             // payload of each request; replies are empty
  double seconds = 1;           // duration
};

struct MessengerResult {
  double requests_per_s = 0;
  double bandwidth = 0;  // payload bytes / s
};

// Forks: the child serves, this process keeps several requests in flight. Call it before other threads exist.
// Throws CommError.
MessengerResult bench_messenger(const MessengerBench& bench);

}  // namespace yoke::comm
