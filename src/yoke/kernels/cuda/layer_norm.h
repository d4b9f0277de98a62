// Layer normalisation of rows on CUDA, fused with the preceding residual addition and its gradient.
//
// A matrix [rows, width] of fp32, bf16 or fp16, contiguous and 16-byte aligned; width a multiple of 8, at
// most kWidestNorm. One warp per row; weight gradients in two stages. No atomics: deterministic.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

inline constexpr int64_t kWidestNorm = 2048;

struct CudaLayerNorm {
  CudaNumber type = CudaNumber::kFloat;  // of everything except mean and inverse
  int64_t rows = 0, width = 0;
  const void* weight = nullptr;
  const void* bias = nullptr;
  float eps = 1e-5f;
  void* stream = nullptr;
};

// sum = x + added (if added is not nullptr; else sum may be nullptr), y = normalised sum. mean and inverse (1
// / deviation) of each row are kept for the gradient.
void layer_norm(const CudaLayerNorm& in, const void* x, const void* added, void* sum, void* y, float* mean,
                float* inverse);

// Floats of scratch memory for layer_norm_backward.
int64_t layer_norm_workspace(const CudaLayerNorm& in);

// grad_x = gradient of the normalised input `x` for grad_y, plus grad_sum if that is not nullptr. grad_x_sums
// [width]: the column sums of grad_x, which are the gradient of a bias that was added to x.
void layer_norm_backward(const CudaLayerNorm& in, const void* x, const float* mean, const float* inverse,
                         const void* grad_y, const void* grad_sum, void* grad_x, void* grad_weight,
                         void* grad_bias, void* grad_x_sums, float* workspace);

}  // namespace yoke::kernels
