// Sums over whole layers (optim/layer_sums.h) where ranks hold pieces or slices of them.
#pragma once

#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/optim/layer_sums.h"
#include "yoke/parallel/placement/slice/parallelize.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke::parallel {

// Of an optimizer of source.owned. `device`: where the communicator takes memory.
optim::LayerSums sums_over_pieces(const PieceSource& source, torch::Device device);

// Of slices over `axis`. `inner`: how sums of the slices themselves are completed, if they are; `parameters`
// are what the optimizer moves. Both arguments by reference must outlive the result.
optim::LayerSums sums_over_slices(optim::LayerSums inner, const std::vector<optim::NamedTensor>& parameters,
                                  const TensorParallel& cut, comm::Communicator& axis);

}  // namespace yoke::parallel
