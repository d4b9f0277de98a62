// Which stage holds which parameters and buffers of a model.
#pragma once

#include <vector>

#include "yoke/models/model.h"
#include "yoke/parallel/common/owned_tensors.h"
#include "yoke/parallel/placement/stage/layout.h"

namespace yoke::parallel {

// Every parameter, then every buffer, in the module's order. Throws ConfigError for one that no block uses.
std::vector<OwnedTensor> owned_tensors(const models::Model& model, const PipelineLayout& layout);

// Work of each block, in arbitrary units, guessed from its weights and how often each is used for one
// sample. Runs `inputs` (one sample) forward; the same everywhere and every time.
std::vector<double> estimate_block_costs(const models::Model& model, const models::Tensors& inputs);

}  // namespace yoke::parallel
