// The state of an optimizer that sees pieces only, as one device would have it: so that a checkpoint knows
// nothing of ranks, and any number of them can go on from it.
#pragma once

#include <string>
#include <vector>

#include "yoke/parallel/ddp/zero/shards.h"

namespace yoke::parallel {

// Collective. On rank 0 the names, shapes and types of the optimizer on one device; elsewhere nothing.
std::vector<optim::NamedTensor> whole_state(const Shards& shards, optim::Optimizer& optimizer);

// Copies what this rank owns out of whole tensors. Throws CheckpointError that names what is missing or
// differs; `what` is the source.
void restore_pieces(const std::vector<optim::NamedTensor>& whole, const Shards& shards,
                    optim::Optimizer& optimizer, const std::string& what);

}  // namespace yoke::parallel
