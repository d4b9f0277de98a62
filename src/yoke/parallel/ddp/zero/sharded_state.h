// The state of an optimizer that sees pieces only, as one device would have it: so that a checkpoint knows
// nothing of ranks, and any number of them can go on from it.
#pragma once

#include <string>
#include <vector>

#include "yoke/parallel/ddp/zero/shards.h"

namespace yoke::parallel {

// One rank's part of the state.
struct OwnedState {
  struct Part {
    std::string name;  // that it has on one device: "exp_avg/conv1.weight"
    Piece piece;
    torch::Tensor values;
  };
  std::vector<Part> parts;
  std::vector<optim::NamedTensor> whole;  // what has a number for each parameter; the same on all ranks
};

// Collective. The tensors of `parts` are the optimizer's own.
OwnedState owned_state(const Shards& shards, optim::Optimizer& optimizer);

// Copies what this rank owns out of whole tensors. Throws CheckpointError that names what is missing or
// differs; `what` is the source.
void restore_pieces(const std::vector<optim::NamedTensor>& whole, const Shards& shards,
                    optim::Optimizer& optimizer, const std::string& what);

}  // namespace yoke::parallel
