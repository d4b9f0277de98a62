// Batch normalisation of channels-last pixels, with an optional addition and ReLU.
//
// A matrix x [rows, channels] (rows = images * height * width) with `pitch` floats per row; the functions
// process the channels [0, width) from the pointers, so that threads can divide the channels among them.
#pragma once

#include <cstdint>

namespace yoke::kernels {

struct BatchNormInput {
  const float* x = nullptr;
  const float* residual = nullptr;  // added before ReLU; nullptr: none
  int64_t rows = 0, width = 0, pitch = 0;
  const float* weight = nullptr;  // nullptr: 1
  const float* bias = nullptr;    // nullptr: 0
  float eps = 1e-5f;
  bool relu = false;
};

// y = weight * (x - mean) / sqrt(variance + eps) + bias (+ residual) (ReLU); stores mean and 1 / sqrt(..) of
// this batch, and `variance` (biased) for the running statistics.
void batch_norm(const BatchNormInput& in, float* y, float* mean, float* inverse, float* variance);

// The gradients of batch_norm. `y` is its result (only read with relu); `grad_residual` may be nullptr and is
// grad_y where ReLU was active.
struct BatchNormGradients {
  const float* grad_y = nullptr;
  const float* y = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  float* grad_x = nullptr;
  float* grad_residual = nullptr;
  float* grad_weight = nullptr;
  float* grad_bias = nullptr;
};
void batch_norm_backward(const BatchNormInput& in, const BatchNormGradients& g);

namespace reference {
// The same, element by element in double. `y` of batch_norm_backward is read with relu.
void batch_norm(const BatchNormInput& in, float* y);
void batch_norm_backward(const BatchNormInput& in, const BatchNormGradients& g);
}  // namespace reference

}  // namespace yoke::kernels
