// What an operation moves, for backends whose library chooses the algorithm and does not tell.
#pragma once

#include "yoke/comm/communicator.h"
#include "yoke/comm/operation.h"

namespace yoke::comm {

// The payload that `rank` of `size` sends and receives for one collective when each byte takes the shortest
// way: ring for all_reduce, reduce_scatter and all_gather (bandwidth-optimal), a chain from or to the root
// for broadcast and reduce, direct messages for the rest. `operations` is 1.
Counters payload_of(const Operation& operation, int rank, int size);

Counters& operator+=(Counters& sum, const Counters& more);

}  // namespace yoke::comm
