// How fast a messenger is between two processes of this machine.
#pragma once

#include <cstddef>
#include <string>

namespace yoke::comm {

struct MessengerBench {
  std::string backend = "shm";  // or tcp (over the loopback)
  size_t bytes = 0;             // of each request's payload; replies are empty
  double seconds = 1;
};

struct MessengerResult {
  double requests_per_s = 0;
  double bandwidth = 0;  // bytes of payload a second
};

// Forks: the child serves, this process keeps some requests under way at a time. Call it before other threads
// exist. Throws CommError.
MessengerResult bench_messenger(const MessengerBench& bench);

}  // namespace yoke::comm
