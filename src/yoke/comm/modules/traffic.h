// Traffic of a collective, computed for libraries that choose the algorithm and do not report it.
#pragma once

#include "yoke/comm/communicator.h"
#include "yoke/comm/operation.h"

namespace yoke::comm {

// Payload that `rank` of `size` sends and receives in one collective with a bandwidth-optimal algorithm: ring
// for all_reduce, reduce_scatter and all_gather, a chain from or to the root for broadcast and reduce, direct
// messages otherwise. `operations` is 1.
Counters payload_of(const Operation& operation, int rank, int size);

Counters& operator+=(Counters& sum, const Counters& more);

}  // namespace yoke::comm
