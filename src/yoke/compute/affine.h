// Matrix product plus bias for weights stored [in, out], on CUDA.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// x [.., in] * weight [in, out] + bias [out], plus `added` [.., out] if defined. Requires: `added` has the
// type in which x is computed.
torch::Tensor affine(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     const torch::Tensor& added = {});

}  // namespace yoke::compute
