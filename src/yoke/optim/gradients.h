// Gradients as lists for foreach operators.
#pragma once

#include <torch/types.h>

#include <vector>

namespace yoke::optim {

// The gradient of `parameter`, or the values of a sparse one (which is coalesced in place, so that each
// element occurs once); undefined if there is none. Modifying it modifies the gradient.
torch::Tensor gradient_values(const torch::Tensor& parameter);

// gradient_values of all parameters that have a gradient, in lists of one device and type each.
std::vector<std::vector<torch::Tensor>> gradient_groups(const std::vector<torch::Tensor>& parameters);

}  // namespace yoke::optim
