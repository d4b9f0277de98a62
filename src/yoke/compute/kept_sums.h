// Column sums of a gradient, left with it by the kernel that wrote it: the layer before needs them for its
// bias and is spared a pass over the gradient.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// `sums` [columns] of `gradient` [.., columns] stay with this tensor until it is modified. Views and copies
// do not have them.
void keep_sums(const torch::Tensor& gradient, torch::Tensor sums);

// Undefined if none were kept, or `gradient` was modified since.
torch::Tensor kept_sums(const torch::Tensor& gradient);

}  // namespace yoke::compute
