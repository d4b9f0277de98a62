// A stage's tensors as part of the whole model's, under the names that one device would use.
#pragma once

#include <vector>

#include "yoke/optim/optimizer.h"
#include "yoke/parallel/pipeline/pipeline_strategy.h"

namespace yoke::parallel {

// Parameters and buffers that this stage holds.
std::vector<optim::NamedTensor> held_tensors(const PipelineStage& stage);

// All parameters and buffers in the model's order, on rank 0 and in host memory; nothing elsewhere.
// Collective.
std::vector<optim::NamedTensor> gather_model(const PipelineStage& stage);

// The optimizer's state of all stages, as one optimizer over the whole model would have it: "kind/parameter"
// by name, and lists with a number for each parameter ("step") put together. Likewise on rank 0.
std::vector<optim::NamedTensor> gather_optimizer(const PipelineStage& stage,
                                                 const std::vector<optim::NamedTensor>& own);

// The part of a whole optimizer's state that belongs to `own` (this stage's optimizer), with its names.
std::vector<optim::NamedTensor> part_of_optimizer(const PipelineStage& stage,
                                                  const std::vector<optim::NamedTensor>& whole,
                                                  const std::vector<optim::NamedTensor>& own);

}  // namespace yoke::parallel
