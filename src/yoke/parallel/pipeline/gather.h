// The weights of all stages in one place, for comparing and for fingerprints: slow, and as large as the
// model.
#pragma once

#include <vector>

#include "yoke/optim/optimizer.h"
#include "yoke/parallel/pipeline/pipeline_strategy.h"

namespace yoke::parallel {

// All parameters and buffers in the model's order, on rank 0 and in host memory; nothing elsewhere.
// Collective.
std::vector<optim::NamedTensor> gather_model(const PipelineStage& stage);

}  // namespace yoke::parallel
