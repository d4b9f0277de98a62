// Moves parameters along their gradients, many tensors per operator call.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/optim/options.h"

namespace yoke::optim {

using NamedTensor = std::pair<std::string, torch::Tensor>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update with learning rate `lr`. Parameters without a gradient stay as they are.
  // `loss` runs forward and backward again and returns the loss: only L-BFGS calls it.
  virtual void step(double lr, const std::function<torch::Tensor()>& loss) = 0;

  // Gradients become absent (not zero), so that the first backward of a step writes instead of adding.
  virtual void zero_grad() = 0;

  // Everything a checkpoint must hold besides the parameters, in a fixed order, by name
  // ("momentum/conv1.weight"). The tensors are the optimizer's own: copying into them restores it.
  // State that appears with the first step is made by this call if need be.
  virtual std::vector<NamedTensor> state() = 0;
};

// `parameters`: name and leaf tensor. Throws ConfigError for an unknown optimizer.
// Low-precision parameters (bf16, fp16) get fp32 master copies, kept in state() as "master/<name>".
std::unique_ptr<Optimizer> make(const OptimizerOptions& options, std::vector<NamedTensor> parameters);

}  // namespace yoke::optim
