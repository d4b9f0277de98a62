// A stage's tensors as part of the whole model's, under the names that one device would use.
#pragma once

#include <vector>

#include "yoke/optim/optimizer.h"
#include "yoke/parallel/pipeline/pipeline_strategy.h"

namespace yoke::parallel {

// Parameters and buffers that this stage holds.
std::vector<optim::NamedTensor> held_tensors(const PipelineStage& stage);

// What a stage has to give to a checkpoint: those of all stages together are the whole, each tensor once. A
// weight that several stages share is the first one's.
struct StageState {
  std::vector<optim::NamedTensor> parameters;
  std::vector<optim::NamedTensor> buffers;
  std::vector<optim::NamedTensor> optimizer;
};

// The same on all ranks of a stage, but for the values of buffers. `optimizer` is the state of this rank's;
// lists in it with a number for each parameter ("step") are put together over all stages and are the first
// one's. Collective over the world.
StageState stage_state(const PipelineStage& stage, const std::vector<optim::NamedTensor>& optimizer);

// The part of a whole optimizer's state that belongs to `own` (this stage's optimizer), with its names.
std::vector<optim::NamedTensor> part_of_optimizer(const PipelineStage& stage,
                                                  const std::vector<optim::NamedTensor>& whole,
                                                  const std::vector<optim::NamedTensor>& own);

}  // namespace yoke::parallel
