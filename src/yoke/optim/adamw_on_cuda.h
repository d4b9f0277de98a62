// AdamW as a CUDA kernel that reads gradients in their own type and writes masters and weights in one pass.
#pragma once

#include <torch/types.h>

#include <vector>

#include "yoke/optim/first_order.h"
#include "yoke/optim/options.h"

namespace yoke::optim {

struct AdamWState {
  const std::vector<torch::Tensor>& mean;
  const std::vector<torch::Tensor>& mean_square;
  StepCounters& steps;
  const torch::Tensor& lr;                     // on the device
  std::optional<torch::Tensor> divisor, skip;  // ScaledUpdate
};

// Updates every parameter that has a gradient. Returns false, having done nothing, if a parameter or gradient
// is not dense fp32, bf16 or fp16 on CUDA.
bool update_on_cuda(const ParameterList& list, const AdamWState& state, const OptimizerOptions& options);

}  // namespace yoke::optim
