// Batch normalisation of pixels with channels last, with the addition and ReLU that often follow.
//
// A matrix x [rows, channels] (rows = images * height * width), `pitch` floats from row to row; the functions
// work on the channels [0, width) behind the pointers, so that threads share the channels among them.
#pragma once

#include <cstdint>

namespace yoke::kernels {

struct BatchNormInput {
  const float* x = nullptr;
  const float* residual = nullptr;  // added before ReLU; null: nothing is
  int64_t rows = 0, width = 0, pitch = 0;
  const float* weight = nullptr;  // null: 1
  const float* bias = nullptr;    // null: 0
  float eps = 1e-5f;
  bool relu = false;
};

// y = weight * (x - mean) / sqrt(variance + eps) + bias (+ residual) (ReLU); mean and 1 / sqrt(..) of this
// batch are stored, and `variance` (biased) for the running statistics.
void batch_norm(const BatchNormInput& in, float* y, float* mean, float* inverse, float* variance);

// The gradients of batch_norm. `y` is its result (only read with relu); `grad_residual` may be null and is
// grad_y where ReLU let it through.
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
// The same, number by number in double. `y` of batch_norm_backward is read with relu.
void batch_norm(const BatchNormInput& in, float* y);
void batch_norm_backward(const BatchNormInput& in, const BatchNormGradients& g);
}  // namespace reference

}  // namespace yoke::kernels
