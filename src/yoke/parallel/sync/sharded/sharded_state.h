// The state of an optimizer that sees pieces only, with the coordinates that one device would have: so that a
// checkpoint knows nothing of ranks, and any number of them can resume from it.
#pragma once

#include <vector>

#include "yoke/parallel/state.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke::parallel {

// `optimizer`: the state of the optimizer of source.owned.
std::vector<StatePiece> sharded_state(const PieceSource& source,
                                      const std::vector<optim::NamedTensor>& optimizer);

}  // namespace yoke::parallel
