// Layer normalisation of rows on CUDA, with the residual addition before it and its gradient's beside it.
//
// A matrix [rows, width] of fp32, bf16 or fp16, contiguous and 16-byte aligned; width a multiple of 8, at
// most kWidestNorm. One warp a row; weight gradients in two stages. No atomics: the same bits every time.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

inline constexpr int64_t kWidestNorm = 2048;

struct CudaLayerNorm {
  CudaNumber type = CudaNumber::kFloat;  // of everything but mean and inverse
  int64_t rows = 0, width = 0;
  const void* weight = nullptr;
  const void* bias = nullptr;
  float eps = 1e-5f;
  void* stream = nullptr;
};

// sum = x + added (where added is not null; else sum may be null), y = normalised sum. mean and inverse
// (1 / deviation) of each row are kept for the gradient.
void layer_norm(const CudaLayerNorm& in, const void* x, const void* added, void* sum, void* y, float* mean,
                float* inverse);

// Floats of scratch memory for layer_norm_backward.
int64_t layer_norm_workspace(const CudaLayerNorm& in);

// grad_x = the gradient of what was normalised (`x`) for grad_y, plus grad_sum where that is not null.
void layer_norm_backward(const CudaLayerNorm& in, const void* x, const float* mean, const float* inverse,
                         const void* grad_y, const void* grad_sum, void* grad_x, void* grad_weight,
                         void* grad_bias, float* workspace);

}  // namespace yoke::kernels
