// Gradients as lists that foreach operators take.
#pragma once

#include <torch/types.h>

#include <vector>

namespace yoke::optim {

// The gradient of `parameter`, or the stored values of a sparse one (which it coalesces in place, so that
// each element stands there once); undefined where there is none. Changing it changes the gradient.
torch::Tensor gradient_values(const torch::Tensor& parameter);

// gradient_values of all parameters that have a gradient, in lists of one device and number format each.
std::vector<std::vector<torch::Tensor>> gradient_groups(const std::vector<torch::Tensor>& parameters);

}  // namespace yoke::optim
