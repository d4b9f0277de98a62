// What a rank alone holds of a run's state: its shard (parallel.zero), or its stage.
#pragma once

#include <string>
#include <vector>

#include "yoke/parallel/state.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

// Which part of the state it is. Ranks with the same index hold the same values.
struct ShardPlace {
  int index = 0;  // -1: this rank holds nothing
  int count = 1;
  std::string kind = "rank";  // what parts are counted by, for people: "rank", "stage"
};

class HoldsShard {
 public:
  virtual ~HoldsShard() = default;
  // The pieces of parameters and optimizer state that this rank updates, and buffers that other shards do not
  // have. The tensors are live; they may be read between two steps without drain(). Shards of all ranks
  // together are the parameters that are sharded, and the optimizer state. Not collective.
  virtual std::vector<StatePiece> shard() = 0;
  virtual ShardPlace place_of_shard() const = 0;
};

// Of a strategy that holds everything on every rank: its parameters and optimizer state, whole.
std::vector<StatePiece> shard_of(Strategy& strategy);
ShardPlace place_of_shard(Strategy& strategy);

}  // namespace yoke::parallel
