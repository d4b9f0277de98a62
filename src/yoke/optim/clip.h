// Gradient norms.
#pragma once

#include <torch/types.h>

#include <vector>

namespace yoke::optim {

// The 2-norm over all gradients, as an fp64 scalar tensor on their device: finite whenever they are.
// Parameters without a gradient are skipped. With max_norm > 0 the gradients are scaled down to that norm.
torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm);

// Multiplies all gradients by a scalar tensor.
void scale_gradients(const std::vector<torch::Tensor>& parameters, const torch::Tensor& factor);

}  // namespace yoke::optim
