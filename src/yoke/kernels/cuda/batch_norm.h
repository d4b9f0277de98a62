// Batch normalisation of channels-last pixels on CUDA, with an optional addition and ReLU.
//
// A matrix [rows, channels] (rows = images * height * width) of fp32, bf16 or fp16, contiguous and 16-byte
// aligned, channels a multiple of 8. Forward reads x twice and writes y; backward reads x and grad_y twice
// and writes grad_x: the minimum for a batch norm, with the rest of the layer fused. No atomics:
// deterministic. All calls are asynchronous on `stream` (a cudaStream_t); pointers are device pointers.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

struct CudaBatchNorm {
  CudaNumber type = CudaNumber::kFloat;            // of x, residual, y and their gradients
  CudaNumber parameter_type = CudaNumber::kFloat;  // of weight, bias and their gradients
  int64_t rows = 0, channels = 0;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;  // added before ReLU; nullptr: none
  float eps = 1e-5f;
  bool relu = false;
  void* stream = nullptr;
};

// Floats of scratch memory for the functions below.
int64_t batch_norm_workspace(const CudaBatchNorm& in);

// running = (1 - momentum) * running + momentum * (mean, unbiased variance).
struct CudaRunningStatistics {
  CudaNumber type = CudaNumber::kFloat;
  void* mean = nullptr;
  void* variance = nullptr;
  float momentum = 0;
};
// This batch's mean and biased variance per channel; updates the running statistics if given.
void batch_norm_statistics(const CudaBatchNorm& in, float* mean, float* variance,
                           const CudaRunningStatistics& running, float* workspace);

// y = weight * (x - mean) / sqrt(variance + eps) + bias (+ residual) (ReLU). With ReLU and a residual `mask`
// gets one bit per value, set if y > 0: [rows, channels / 8] bytes. It may be nullptr if no gradient is
// needed.
void batch_norm_apply(const CudaBatchNorm& in, const float* mean, const float* variance, void* y,
                      uint8_t* mask);

struct CudaBatchNormGradients {
  const void* grad_y = nullptr;
  int64_t grad_y_pitch = 0;       // numbers from one row of grad_y to the next, a multiple of 8; 0: channels
  const uint8_t* mask = nullptr;  // of batch_norm_apply, with relu and residual
  const float* mean = nullptr;
  const float* variance = nullptr;
  void* grad_x = nullptr;
  void* grad_residual = nullptr;  // nullptr: not needed
  void* grad_weight = nullptr;
  void* grad_bias = nullptr;
};
// The gradients of batch norm in training. in.residual only says whether there was one.
void batch_norm_backward(const CudaBatchNorm& in, const CudaBatchNormGradients& g, float* workspace);

}  // namespace yoke::kernels
