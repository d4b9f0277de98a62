// Which parts of a model (stages of a pipeline, parts of a graph) hold which of its parameters and buffers.
#pragma once

#include <string>
#include <vector>

#include "yoke/models/model.h"
#include "yoke/optim/optimizer.h"

namespace yoke::parallel {

struct OwnedTensor {
  std::string name;
  torch::Tensor tensor;
  bool is_parameter = true;
  std::vector<int> stages;  // that use it, ascending; several: tied, each holds a copy
  int chunk = 0;            // of the stage, the first that uses it: the last to add to its gradient
  bool held_by(int stage) const;
  bool is_tied() const { return stages.size() > 1; }
  bool is_trained() const { return is_parameter && tensor.requires_grad(); }
};

using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

// Every parameter, then every buffer, in the module's order. `used`: the modules of each virtual stage (chunk
// x stages + stage). Throws ConfigError for a tensor that none of them has.
std::vector<OwnedTensor> owned_tensors(const models::Model& model, const std::vector<Modules>& used,
                                       int stages);

// Gives the memory of tensors that `stage` does not hold back: they keep name, type and shape and read as
// zeros.
void release_others(std::vector<OwnedTensor>& tensors, int stage);

// The parameters of the model that `stage` holds, and those of them that are trained.
std::vector<optim::NamedTensor> held_parameters(const std::vector<OwnedTensor>& tensors, int stage);
std::vector<optim::NamedTensor> trained_parameters(const std::vector<OwnedTensor>& tensors, int stage);

}  // namespace yoke::parallel
