// Matrix product plus bias for weights stored [in, out].
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// x [.., in] times weight [in, out] plus bias [out].
torch::Tensor affine(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace yoke::compute
