// Which stage holds which parameters and buffers of a model.
#pragma once

#include <string>
#include <vector>

#include "yoke/models/model.h"
#include "yoke/parallel/pipeline/layout.h"

namespace yoke::parallel {

struct OwnedTensor {
  std::string name;
  torch::Tensor tensor;
  bool is_parameter = true;
  std::vector<int> stages;  // that use it, ascending; several: tied, each holds a copy
  int chunk = 0;            // of the stage, the first that uses it: the last to add to its gradient
  bool held_by(int stage) const;
  bool is_tied() const { return stages.size() > 1; }
};

// Every parameter, then every buffer, in the module's order. Throws ConfigError for one that no block uses.
std::vector<OwnedTensor> owned_tensors(const models::Model& model, const PipelineLayout& layout);

// Gives the memory of tensors that `stage` does not hold back: they keep name, type and shape and read as
// zeros.
void release_others(std::vector<OwnedTensor>& tensors, int stage);

// Work of each block, in arbitrary units, guessed from its weights and how often each is used for one
// sample. Runs `inputs` (one sample) forward; the same everywhere and every time.
std::vector<double> estimate_block_costs(const models::Model& model, const models::Tensors& inputs);

}  // namespace yoke::parallel
