// What ranks still hold of a sharded run when an epoch of an elastic job has ended, and which of it the next
// epoch continues with (docs/design/elastic.md).
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/engine/shard_block.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/holds_shard.h"

namespace yoke::engine {

// What ranks have in common after a step.
struct StepFacts {
  int64_t step = 0;
  nlohmann::json rest;                        // checkpoint::State::rest
  std::vector<optim::NamedTensor> buffers{};  // and parameters that are not sharded
};

// One shard after one step.
struct HeldShard {
  int64_t epoch = 0;  // whose ranks cut the state
  parallel::ShardPlace place;
  bool own = true;  // false: the copy of a neighbour's
  std::shared_ptr<const ShardOutline> outline;
  torch::Tensor block;
  std::shared_ptr<const StepFacts> facts;
};

struct Holdings {
  std::vector<HeldShard> shards{};
  int64_t finished = -1;  // the last step whose update is done on this rank
  int64_t started = -1;   // the last step that has begun
};

// The newest step of which every shard is left.
struct ShardChoice {
  int64_t step = -1;          // -1: there is none
  int64_t epoch = -1;         // whose ranks cut it
  std::string kind = "rank";  // what shards are counted by (ShardPlace)
  // By shard: the rank of this epoch that has it.
  std::vector<int> giver{};
  std::vector<int> rebuilt{};  // shards that are left as a copy only
  int64_t newest = -1;         // the newest step that some rank has finished
  bool interrupted = false;    // some rank had begun another step
  // Without a choice: the shards of the newest step that nobody has; empty: nobody has any.
  std::vector<int> lost{};

  bool complete() const { return step >= 0; }
  // Steps that are computed once more.
  int64_t repeated() const;
};

nlohmann::json describe(const Holdings& holdings);
// From everybody's description, by rank. The owner of a shard is preferred to the holder of a copy.
ShardChoice choose_shards(const nlohmann::json& all);

// Collective. Throws CommError.
ShardChoice agree_on_shards(const Holdings& own, comm::Communicator& comm);

// The facts of the chosen step, from the lowest rank that has them. Requires choice.complete(). Collective.
// Throws CommError.
StepFacts share_facts(const Holdings& own, const ShardChoice& choice, comm::Communicator& comm);

// The shards of `own` that this rank gives.
std::vector<const HeldShard*> given_by(int rank, const Holdings& own, const ShardChoice& choice);

}  // namespace yoke::engine
