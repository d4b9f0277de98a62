#include "yoke/kernels/batch_norm.h"

#include <array>
#include <cmath>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

constexpr int64_t kInner = 64;  // rows summed in float before the sum goes into a double

using Doubles = std::array<double, kLanes>;

YOKE_INLINE Vec take(const float* p, int64_t lanes) {
  return lanes == kLanes ? load(p) : load_some(p, lanes);
}
YOKE_INLINE void put(float* p, const Vec& v, int64_t lanes) {
  if (lanes == kLanes) {
    store(p, v);
  } else {
    store_some(p, v, lanes);
  }
}
YOKE_INLINE void add_to(Doubles& sums, const Vec& v) {
  for (int64_t i = 0; i < kLanes; ++i) sums[static_cast<size_t>(i)] += static_cast<double>(v[i]);
}
YOKE_INLINE Vec divided(const Doubles& sums, int64_t count) {
  Vec v{};
  for (int64_t i = 0; i < kLanes; ++i)
    v[i] = static_cast<float>(sums[static_cast<size_t>(i)] / static_cast<double>(count));
  return v;
}

YOKE_INLINE Vec column_mean(const BatchNormInput& in, int64_t c, int64_t lanes) {
  Doubles sums{};
  for (int64_t begin = 0; begin < in.rows; begin += kInner) {
    int64_t end = begin + kInner < in.rows ? begin + kInner : in.rows;
    Vec sum{};
    for (int64_t r = begin; r < end; ++r) sum += take(in.x + r * in.pitch + c, lanes);
    add_to(sums, sum);
  }
  return divided(sums, in.rows);
}

YOKE_INLINE Vec column_variance(const BatchNormInput& in, int64_t c, int64_t lanes, const Vec& mean) {
  Doubles sums{};
  for (int64_t begin = 0; begin < in.rows; begin += kInner) {
    int64_t end = begin + kInner < in.rows ? begin + kInner : in.rows;
    Vec sum{};
    for (int64_t r = begin; r < end; ++r) {
      Vec d = take(in.x + r * in.pitch + c, lanes) - mean;
      sum += d * d;
    }
    add_to(sums, sum);
  }
  return divided(sums, in.rows);
}

YOKE_INLINE void normalise(const BatchNormInput& in, float* y, int64_t c, int64_t lanes, const Vec& scale,
                           const Vec& shift) {
  for (int64_t r = 0; r < in.rows; ++r) {
    int64_t at = r * in.pitch + c;
    Vec v = take(in.x + at, lanes) * scale + shift;
    if (in.residual != nullptr) v += take(in.residual + at, lanes);
    if (in.relu) v = at_least(Vec{}, v);
    put(y + at, v, lanes);
  }
}

YOKE_INLINE void forward_columns(const BatchNormInput& in, float* y, float* mean, float* inverse,
                                 float* variance, int64_t c, int64_t lanes) {
  Vec m = column_mean(in, c, lanes);
  Vec v = column_variance(in, c, lanes, m);
  Vec inv{};
  for (int64_t i = 0; i < kLanes; ++i) inv[i] = 1.0f / std::sqrt(v[i] + in.eps);
  Vec scale = in.weight == nullptr ? inv : inv * take(in.weight + c, lanes);
  Vec shift = (in.bias == nullptr ? Vec{} : take(in.bias + c, lanes)) - m * scale;
  normalise(in, y, c, lanes, scale, shift);
  put(mean + c, m, lanes);
  put(inverse + c, inv, lanes);
  put(variance + c, v, lanes);
}

YOKE_INLINE void batch_norm_body(const BatchNormInput& in, float* y, float* mean, float* inverse,
                                 float* variance) {
  int64_t c = 0;
  for (; c + kLanes <= in.width; c += kLanes) forward_columns(in, y, mean, inverse, variance, c, kLanes);
  if (c < in.width) forward_columns(in, y, mean, inverse, variance, c, in.width - c);
}

// The gradient that reaches the normalisation: zero where ReLU was inactive.
YOKE_INLINE Vec incoming(const BatchNormInput& in, const BatchNormGradients& g, int64_t at, int64_t lanes) {
  Vec v = take(g.grad_y + at, lanes);
  if (!in.relu) return v;
  return select((IntVec)(take(g.y + at, lanes) <= Vec{}), Vec{}, v);
}

YOKE_INLINE void backward_columns(const BatchNormInput& in, const BatchNormGradients& g, int64_t c,
                                  int64_t lanes) {
  Vec mean = take(g.mean + c, lanes);
  Vec inverse = take(g.inverse + c, lanes);
  Doubles sums{};
  Doubles products{};
  for (int64_t begin = 0; begin < in.rows; begin += kInner) {
    int64_t end = begin + kInner < in.rows ? begin + kInner : in.rows;
    Vec sum{};
    Vec product{};
    for (int64_t r = begin; r < end; ++r) {
      int64_t at = r * in.pitch + c;
      Vec v = incoming(in, g, at, lanes);
      sum += v;
      product += v * (take(in.x + at, lanes) - mean);
    }
    add_to(sums, sum);
    add_to(products, product);
  }
  Vec mean_grad = divided(sums, in.rows);
  Vec mean_product = divided(products, in.rows) * inverse;
  put(g.grad_bias + c, divided(sums, 1), lanes);
  put(g.grad_weight + c, divided(products, 1) * inverse, lanes);
  Vec scale = in.weight == nullptr ? inverse : inverse * take(in.weight + c, lanes);
  // grad_x = scale * (v - mean_grad - (x - mean) * inverse * mean_product)
  Vec slope = scale * inverse * mean_product;
  Vec shift = slope * mean - scale * mean_grad;
  for (int64_t r = 0; r < in.rows; ++r) {
    int64_t at = r * in.pitch + c;
    Vec v = incoming(in, g, at, lanes);
    if (g.grad_residual != nullptr) put(g.grad_residual + at, v, lanes);
    put(g.grad_x + at, v * scale - take(in.x + at, lanes) * slope + shift, lanes);
  }
}

YOKE_INLINE void batch_norm_backward_body(const BatchNormInput& in, const BatchNormGradients& g) {
  int64_t c = 0;
  for (; c + kLanes <= in.width; c += kLanes) backward_columns(in, g, c, kLanes);
  if (c < in.width) backward_columns(in, g, c, in.width - c);
}

}  // namespace

YOKE_KERNEL(batch_norm, (const BatchNormInput& in, float* y, float* mean, float* inverse, float* variance),
            (in, y, mean, inverse, variance))
YOKE_KERNEL(batch_norm_backward, (const BatchNormInput& in, const BatchNormGradients& g), (in, g))

namespace reference {
namespace {

struct Moments {
  double mean = 0, inverse = 0;
};

Moments moments_of(const BatchNormInput& in, int64_t c) {
  double mean = 0, variance = 0;
  for (int64_t r = 0; r < in.rows; ++r) mean += in.x[r * in.pitch + c];
  mean /= static_cast<double>(in.rows);
  for (int64_t r = 0; r < in.rows; ++r) variance += std::pow(in.x[r * in.pitch + c] - mean, 2);
  return {mean, 1 / std::sqrt(variance / static_cast<double>(in.rows) + in.eps)};
}

}  // namespace

void batch_norm(const BatchNormInput& in, float* y) {
  for (int64_t c = 0; c < in.width; ++c) {
    Moments m = moments_of(in, c);
    double weight = in.weight == nullptr ? 1 : in.weight[c], bias = in.bias == nullptr ? 0 : in.bias[c];
    for (int64_t r = 0; r < in.rows; ++r) {
      int64_t at = r * in.pitch + c;
      double value = (in.x[at] - m.mean) * m.inverse * weight + bias;
      if (in.residual != nullptr) value += in.residual[at];
      y[at] = static_cast<float>(in.relu && value < 0 ? 0 : value);
    }
  }
}

void batch_norm_backward(const BatchNormInput& in, const BatchNormGradients& g) {
  auto count = static_cast<double>(in.rows);
  for (int64_t c = 0; c < in.width; ++c) {
    Moments m = moments_of(in, c);
    double sum = 0, product = 0;
    for (int64_t r = 0; r < in.rows; ++r) {
      int64_t at = r * in.pitch + c;
      double grad = in.relu && g.y[at] <= 0 ? 0 : g.grad_y[at];
      sum += grad;
      product += grad * (in.x[at] - m.mean) * m.inverse;
    }
    g.grad_bias[c] = static_cast<float>(sum);
    g.grad_weight[c] = static_cast<float>(product);
    double scale = m.inverse * (in.weight == nullptr ? 1 : in.weight[c]);
    for (int64_t r = 0; r < in.rows; ++r) {
      int64_t at = r * in.pitch + c;
      double grad = in.relu && g.y[at] <= 0 ? 0 : g.grad_y[at];
      double normal = (in.x[at] - m.mean) * m.inverse;
      g.grad_x[at] = static_cast<float>(scale * (grad - sum / count - normal * product / count));
      if (g.grad_residual != nullptr) g.grad_residual[at] = static_cast<float>(grad);
    }
  }
}

}  // namespace reference
}  // namespace yoke::kernels
