// Shards of the last epoch of an elastic job become those of this one: every rank gives what it holds, and
// receives what it needs, directly from whoever has it.
#pragma once

#include "yoke/engine/shard_holdings.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// Fills parameters, buffers and optimizer state of `worker`. `own` stays as it is. Returns the bytes that
// this rank has received. Collective. Throws CommError, and CheckpointError for another model or optimizer.
int64_t restore_shards(const Holdings& own, const ShardChoice& choice, const StepFacts& facts, Worker& worker,
                       comm::Communicator& comm);

}  // namespace yoke::engine
