// GELU (tanh approximation) and bias, on rows of floats. Ranges must not overlap unless they are identical.
#pragma once

#include <cstdint>

namespace yoke::kernels {

// y = gelu(x), 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
void gelu(const float* x, float* y, int64_t count);

// grad_x = grad_y * gelu'(x).
void gelu_backward(const float* x, const float* grad_y, float* grad_x, int64_t count);

// For each of `rows` rows of `width`: z += bias, y = gelu(z).
void bias_gelu(float* z, const float* bias, float* y, int64_t rows, int64_t width);

// For each row: y += bias, then ReLU if `relu`.
void add_bias(float* y, const float* bias, int64_t rows, int64_t width, bool relu);

// grad_x = grad_y where y > 0, else 0. grad_x may be grad_y.
void relu_backward(const float* y, const float* grad_y, float* grad_x, int64_t count);

// sums[c] = sum over `rows` rows of x[r * pitch + c], for c in [0, width).
void column_sums(const float* x, float* sums, int64_t rows, int64_t width, int64_t pitch);

namespace reference {
double gelu(double x);
double gelu_slope(double x);
}  // namespace reference

}  // namespace yoke::kernels
