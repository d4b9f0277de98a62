// What a stage holds of the whole model's state, with the coordinates and names that one device would use.
#pragma once

#include <vector>

#include "yoke/optim/optimizer.h"
#include "yoke/parallel/common/part_shards.h"
#include "yoke/parallel/placement/stage/stage.h"
#include "yoke/parallel/state.h"

namespace yoke::parallel {

// Parameters and buffers of the stage, and the state of its optimizer. All ranks of a stage hold the same,
// except for what `shards` cut in pieces; a weight that several stages share is saved by the first.
std::vector<StatePiece> stage_state(const PipelineStage& stage,
                                    const std::vector<optim::NamedTensor>& optimizer,
                                    const PartShards& shards = {});

// The gradients of the stage's parameters, or of this rank's pieces of them.
std::vector<StatePiece> stage_gradients(const PipelineStage& stage, const PartShards& shards = {});

}  // namespace yoke::parallel
