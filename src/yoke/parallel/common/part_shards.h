// How the replicas of a part of a model keep its state: each all of it; its share of the optimizer's state
// and gradients (ZeRO 1, 2); or its share of the parameters too (ZeRO 3).
#pragma once

#include "yoke/parallel/placement/sharded/fully_shard.h"
#include "yoke/parallel/strategy.h"
#include "yoke/parallel/sync/sharded/shards.h"

namespace yoke::parallel {

// At most one of the two. Both are of the part's parameters, over its replicas.
struct PartShards {
  Shards* shards = nullptr;     // ZeRO 1, 2
  FullyShard* fully = nullptr;  // ZeRO 3

  explicit operator bool() const { return shards != nullptr || fully != nullptr; }
  PieceSource source() const { return fully != nullptr ? fully->pieces() : shards->source(); }

  // Waits for pieces that other replicas have updated.
  void await_parameters() const;
  void forget_gradients() const;
  // The optimizer of this rank has updated its pieces.
  void share_updates() const;
  // Gradients were made outside backward().
  void reduce_rest() const;
  // Lets go of what a forward() without backward() has gathered.
  void release() const;
};

// Adds the time since the last call that gathers and reductions took.
void note_times(FullyShard& fully, Communication& communication);

}  // namespace yoke::parallel
