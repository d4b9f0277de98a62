// The two linear layers of a transformer's block.
#pragma once

#include <torch/types.h>

#include "yoke/compute/token_kernels.h"

namespace yoke::compute {

using cuda::MlpWeights;

// linear_transposed_add(linear_transposed_gelu(x)): GELU between the two layers, and the residual `added`.
// One function to autograd where that is faster.
torch::Tensor mlp_add(const torch::Tensor& x, const MlpWeights& weights, const torch::Tensor& added);

}  // namespace yoke::compute
