// Matrix products of layers: on CUDA in bf16 and fp16 with the fastest algorithm of cuBLASLt, timed at the
// first call with a shape; otherwise, and with train.deterministic, LibTorch's.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// left [rows, inner] * right [inner, columns]; either may be a transposed view. Not differentiable.
torch::Tensor product(const torch::Tensor& left, const torch::Tensor& right);

// The same plus bias [columns] in every row, plus `added` [rows, columns] if defined.
torch::Tensor product_plus(const torch::Tensor& left, const torch::Tensor& right, const torch::Tensor& bias,
                           const torch::Tensor& added);

struct GeluOfProduct {
  torch::Tensor z;  // product plus bias
  torch::Tensor y;  // GELU of it, tanh approximation
};
GeluOfProduct product_gelu(const torch::Tensor& left, const torch::Tensor& right, const torch::Tensor& bias);

// left * right, each number times the derivative of that GELU at z [rows, columns]: the gradient of z where
// the product is that of GELU(z). Undefined where no library does both at once.
torch::Tensor product_gelu_slope(const torch::Tensor& left, const torch::Tensor& right,
                                 const torch::Tensor& z);

}  // namespace yoke::compute
