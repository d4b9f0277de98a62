// Bias and ReLU of pixels (or rows) with channels last on CUDA: each way one pass over the matrix.
//
// A matrix [rows, channels] of fp32, bf16 or fp16, contiguous and 16-byte aligned, channels a multiple of 8.
// No atomics: the same bits every time.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

struct CudaBiasRelu {
  CudaNumber type = CudaNumber::kFloat;  // of everything but the workspace
  int64_t rows = 0, channels = 0;
  bool relu = true;
  void* stream = nullptr;
};

// y += bias, then ReLU; in place. NaN stays NaN.
void add_bias_relu(const CudaBiasRelu& shape, void* y, const void* bias);

// Floats of scratch memory for bias_relu_backward.
int64_t bias_relu_workspace(const CudaBiasRelu& shape);

// grad = grad_y where y > 0 (everywhere without ReLU), grad_bias = its column sums. `grad` may be grad_y
// itself, or null without ReLU: then only the sums are taken.
void bias_relu_backward(const CudaBiasRelu& shape, const void* grad_y, const void* y, void* grad, void* grad_bias,
                        float* workspace);

}  // namespace yoke::kernels
