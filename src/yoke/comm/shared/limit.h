// What the memory of this machine allows an all-reduce to reach.
#pragma once

#include <cstddef>

#include "yoke/base/deadline.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

// Seconds that one all-reduce of `bytes` bytes of fp32 (shared by the ranks of `backend`) takes when nothing
// but its memory traffic counts: each rank reads its part of all buffers, writes their sum into its own, and
// copies the other parts from where they were summed. Median of `repeats`, from one meeting of the ranks to
// the next. Collective. Requires a backend "local" or "shm": throws ConfigError for others; CommError as
// run().
double in_place_limit(Backend& backend, size_t bytes, int repeats, const Deadline& deadline);

}  // namespace yoke::comm
