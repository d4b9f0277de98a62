// Lower bound for the time of an all-reduce on this machine, given by memory bandwidth.
#pragma once

#include <cstddef>

#include "yoke/base/deadline.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

// Measures the memory traffic of one in-place all-reduce of `bytes` bytes of fp32 over the ranks of
// `backend`: each rank reads its part of all buffers, writes the sum to its own, and copies the other parts
// from their owners. Returns the median of `repeats` in seconds, barriers included. Collective. Throws
// ConfigError unless the backend is "local" or "shm"; CommError like run().
double in_place_limit(Backend& backend, size_t bytes, int repeats, const Deadline& deadline);

}  // namespace yoke::comm
