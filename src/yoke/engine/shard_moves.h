// Which elements travel from which rank to which when shards are cut anew for other ranks. Pure data: every
// rank computes the same list.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "yoke/engine/shard_block.h"

namespace yoke::engine {

// Elements [begin, end) of part `part` of outline `offer` of rank `from`, for part `want` of rank `to`.
struct Move {
  int from = 0, to = 0;
  size_t offer = 0, part = 0, want = 0;
  int64_t begin = 0, end = 0;  // of the whole tensor
};

// `offers`: the outlines that each rank gives. What several ranks offer is equal; a rank takes its own first.
// `wants`: what each rank needs; offsets
// do not count. Lists do not move. A master that nobody has comes from its fp32 parameter, and a parameter of
// another type from its master. Throws CheckpointError where elements are missing: of another model or
// optimizer.
std::vector<Move> plan_moves(const std::vector<std::vector<ShardOutline>>& offers,
                             const std::vector<ShardOutline>& wants);

}  // namespace yoke::engine
