#include "yoke/kernels/activation.h"

#include <cmath>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

constexpr float kScale = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

// 0.5 (1 + tanh u) is the logistic function of 2u: one exponential, no cancellation for negative x.
YOKE_INLINE Vec logistic_of_x(const Vec& x) {
  Vec minus_2u = x * (-2 * kScale) * (1.0f + kCubic * (x * x));
  return 1.0f / (1.0f + exponential(minus_2u));
}

YOKE_INLINE Vec slope(const Vec& x) {
  Vec s = logistic_of_x(x);
  return s + x * s * (1.0f - s) * (2 * kScale * (1.0f + 3 * kCubic * (x * x)));
}

YOKE_INLINE void gelu_body(const float* x, float* y, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vec v = load(x + i);
    store(y + i, v * logistic_of_x(v));
  }
  if (i == count) return;
  Vec v = load_some(x + i, count - i);
  store_some(y + i, v * logistic_of_x(v), count - i);
}

YOKE_INLINE void gelu_backward_body(const float* x, const float* grad_y, float* grad_x, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(grad_x + i, load(grad_y + i) * slope(load(x + i)));
  if (i == count) return;
  Vec v = load_some(grad_y + i, count - i) * slope(load_some(x + i, count - i));
  store_some(grad_x + i, v, count - i);
}

YOKE_INLINE void bias_gelu_body(float* z, const float* bias, float* y, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, z += width, y += width) {
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      Vec v = load(z + i) + load(bias + i);
      store(z + i, v);
      store(y + i, v * logistic_of_x(v));
    }
    if (i == width) continue;
    Vec v = load_some(z + i, width - i) + load_some(bias + i, width - i);
    store_some(z + i, v, width - i);
    store_some(y + i, v * logistic_of_x(v), width - i);
  }
}

YOKE_INLINE void add_bias_body(float* y, const float* bias, int64_t rows, int64_t width, bool relu) {
  for (int64_t r = 0; r < rows; ++r, y += width) {
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      Vec v = load(y + i) + load(bias + i);
      store(y + i, relu ? at_least(Vec{}, v) : v);
    }
    if (i == width) continue;
    Vec v = load_some(y + i, width - i) + load_some(bias + i, width - i);
    store_some(y + i, relu ? at_least(Vec{}, v) : v, width - i);
  }
}

YOKE_INLINE void relu_backward_body(const float* y, const float* grad_y, float* grad_x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) grad_x[i] = y[i] <= 0 ? 0 : grad_y[i];
}

YOKE_INLINE void column_sums_body(const float* x, float* sums, int64_t rows, int64_t width, int64_t pitch) {
  int64_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    Vec a{};
    Vec b{};
    for (int64_t r = 0; r < rows; ++r) {
      a += load(x + r * pitch + c);
      b += load(x + r * pitch + c + kLanes);
    }
    store(sums + c, a);
    store(sums + c + kLanes, b);
  }
  for (; c < width; c += kLanes) {
    int64_t lanes = width - c < kLanes ? width - c : kLanes;
    Vec a{};
    for (int64_t r = 0; r < rows; ++r) a += load_some(x + r * pitch + c, lanes);
    store_some(sums + c, a, lanes);
  }
}

}  // namespace

YOKE_KERNEL(gelu, (const float* x, float* y, int64_t count), (x, y, count))
YOKE_KERNEL(gelu_backward, (const float* x, const float* grad_y, float* grad_x, int64_t count),
            (x, grad_y, grad_x, count))
YOKE_KERNEL(bias_gelu, (float* z, const float* bias, float* y, int64_t rows, int64_t width),
            (z, bias, y, rows, width))
YOKE_KERNEL(add_bias, (float* y, const float* bias, int64_t rows, int64_t width, bool relu),
            (y, bias, rows, width, relu))
YOKE_KERNEL(relu_backward, (const float* y, const float* grad_y, float* grad_x, int64_t count),
            (y, grad_y, grad_x, count))
YOKE_KERNEL(column_sums, (const float* x, float* sums, int64_t rows, int64_t width, int64_t pitch),
            (x, sums, rows, width, pitch))

namespace reference {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  double scale = std::sqrt(2 / M_PI);
  double t = std::tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

}  // namespace reference
}  // namespace yoke::kernels
