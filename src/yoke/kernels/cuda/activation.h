// Bias with ReLU or GELU of channels-last pixels (or rows) on CUDA: one pass over the matrix each.
//
// A matrix [rows, channels] of fp32, bf16 or fp16, contiguous and 16-byte aligned, channels a multiple of 8.
// No atomics: deterministic.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

struct CudaActivation {
  CudaNumber type = CudaNumber::kFloat;  // of everything except the workspace
  int64_t rows = 0, channels = 0;
  void* stream = nullptr;
};

// y += bias, then ReLU; in place. NaN stays NaN.
void add_bias_relu(const CudaActivation& shape, void* y, const void* bias);

// Floats of scratch memory for the functions below.
int64_t activation_workspace(const CudaActivation& shape);

// sums [channels]: column sums of x, the gradient of a bias.
void column_sums(const CudaActivation& shape, const void* x, void* sums, float* workspace);

// grad = grad_y where y > 0; grad_bias = the column sums of grad. `grad` may be grad_y itself.
void relu_backward(const CudaActivation& shape, const void* grad_y, const void* y, void* grad,
                   void* grad_bias, float* workspace);

// The same for GELU (tanh approximation), whose argument was z.
void gelu_backward(const CudaActivation& shape, const void* grad_y, const void* z, void* grad,
                   void* grad_bias, float* workspace);

}  // namespace yoke::kernels
