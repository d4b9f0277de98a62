// Matrix product plus bias for weights stored [in, out].
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// x [.., in] times weight [in, out] plus bias [out]. The bias gradient is a matrix product with ones: one
// read of the gradient at full bandwidth, where LibTorch's column sum on CUDA takes three times as long.
torch::Tensor affine(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace yoke::compute
