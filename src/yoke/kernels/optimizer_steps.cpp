#include "yoke/kernels/optimizer_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {

namespace {

// `a - b * c` is fused where the CPU supports it, as in LibTorch's kernels: equal bits.
template <class T>
YOKE_INLINE void sgd_of(const SgdStep& step, double weight, const T* gradient, const T* from, T* to,
                        T* velocity, int64_t count) {
  const T scale = static_cast<T>(weight), lr = static_cast<T>(step.lr),
          decay = static_cast<T>(step.weight_decay), momentum = static_cast<T>(step.momentum);
  if (step.momentum == 0 && step.weight_decay == 0) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] - lr * (gradient[i] * scale);
    return;
  }
  if (step.momentum == 0) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] - lr * (gradient[i] * scale + decay * from[i]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    T g = gradient[i] * scale + decay * from[i];
    velocity[i] = momentum * velocity[i] + g;
    g = step.nesterov ? g + momentum * velocity[i] : velocity[i];
    to[i] = from[i] - lr * g;
  }
}

YOKE_INLINE void sgd_floats_body(const SgdStep& step, double weight, const float* gradient, const float* from,
                                 float* to, float* velocity, int64_t count) {
  sgd_of<float>(step, weight, gradient, from, to, velocity, count);
}
YOKE_INLINE void sgd_doubles_body(const SgdStep& step, double weight, const double* gradient,
                                  const double* from, double* to, double* velocity, int64_t count) {
  sgd_of<double>(step, weight, gradient, from, to, velocity, count);
}
YOKE_KERNEL(sgd_floats,
            (const SgdStep& step, double weight, const float* gradient, const float* from, float* to,
             float* velocity, int64_t count),
            (step, weight, gradient, from, to, velocity, count))
YOKE_KERNEL(sgd_doubles,
            (const SgdStep& step, double weight, const double* gradient, const double* from, double* to,
             double* velocity, int64_t count),
            (step, weight, gradient, from, to, velocity, count))

}  // namespace

template <>
void sgd(const SgdStep& step, double weight, const float* gradient, const float* from, float* to,
         float* velocity, int64_t count) {
  sgd_floats(step, weight, gradient, from, to, velocity, count);
}
template <>
void sgd(const SgdStep& step, double weight, const double* gradient, const double* from, double* to,
         double* velocity, int64_t count) {
  sgd_doubles(step, weight, gradient, from, to, velocity, count);
}

template <class T>
void adamw(const AdamwStep& step, double weight, const T* gradient, const T* from, T* to, T* mean,
           T* mean_square, int64_t count) {
  const auto number = static_cast<double>(step.number);
  const double correction1 = 1 - std::pow(step.beta1, number), correction2 = 1 - std::pow(step.beta2, number);
  const T scale = static_cast<T>(weight), beta2 = static_cast<T>(step.beta2), eps = static_cast<T>(step.eps),
          rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(1 - step.beta2),
          shrink = static_cast<T>(1 - step.lr * step.weight_decay),
          size = static_cast<T>(step.lr / correction1), root = static_cast<T>(std::sqrt(correction2));
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * scale;
    mean[i] += rest1 * (g - mean[i]);
    mean_square[i] = beta2 * mean_square[i] + rest2 * g * g;
    to[i] = from[i] * shrink - size * mean[i] / (std::sqrt(mean_square[i]) / root + eps);
  }
}

template <class T>
void adagrad(const AdagradStep& step, double weight, const T* gradient, const T* from, T* to, T* sum,
             int64_t count) {
  const T scale = static_cast<T>(weight), lr = static_cast<T>(step.lr),
          decay = static_cast<T>(step.weight_decay), eps = static_cast<T>(step.eps);
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * scale + decay * from[i];
    sum[i] += g * g;
    to[i] = from[i] - lr * g / (std::sqrt(sum[i]) + eps);
  }
}

namespace {

template <class T>
T shrink(T value, T by) {
  return value > by ? value - by : value < -by ? value + by : T{0};
}

}  // namespace

template <class T>
void ftrl(const FtrlStep& step, double weight, const T* gradient, const T* from, T* to, T* linear, T* sum,
          int64_t count) {
  if (step.lr == 0) {
    if (to != from) std::copy_n(from, count, to);
    return;
  }
  const T scale = static_cast<T>(weight), inverse = static_cast<T>(1 / step.lr),
          beta = static_cast<T>(step.beta), l1 = static_cast<T>(step.l1), l2 = static_cast<T>(step.l2);
  for (int64_t i = 0; i < count; ++i) {
    const T w = from[i], g = gradient[i] * scale;
    T z = linear[i];
    if (z == 0 && sum[i] == 0 && w != 0) z = -(w * (beta * inverse + l2) + std::copysign(l1, w));
    const T squares = sum[i] + g * g, root = std::sqrt(squares);
    z += g - (root - std::sqrt(sum[i])) * inverse * w;
    linear[i] = z;
    sum[i] = squares;
    to[i] = -shrink(z, l1) / ((beta + root) * inverse + l2);
  }
}

template <class T>
void lion(const LionStep& step, double weight, const T* gradient, const T* from, T* to, T* momentum,
          int64_t count) {
  const T scale = static_cast<T>(weight), lr = static_cast<T>(step.lr),
          rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(1 - step.beta2),
          keep = static_cast<T>(1 - step.lr * step.weight_decay);
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * scale, direction = momentum[i] + rest1 * (g - momentum[i]);
    const T sign = direction > 0 ? T{1} : direction < 0 ? T{-1} : T{0};
    to[i] = from[i] * keep - lr * sign;
    momentum[i] += rest2 * (g - momentum[i]);
  }
}

template <class T>
void proximal(const ProximalStep& step, double weight, const T* gradient, const T* from, T* to,
              int64_t count) {
  const T by = static_cast<T>(step.lr * weight), l1 = static_cast<T>(step.lr * step.l1),
          divisor = static_cast<T>(1 + step.lr * step.l2);
  for (int64_t i = 0; i < count; ++i) to[i] = shrink(from[i] - by * gradient[i], l1) / divisor;
}

template <class T>
void add_scaled(T* into, const T* from, double scale, int64_t count) {
  const T factor = static_cast<T>(scale);
  for (int64_t i = 0; i < count; ++i) into[i] += factor * from[i];
}

// An exponent of all ones is an infinity or a NaN. Integers, because a sum of floats cannot be vectorised.
template <class Bits>
YOKE_INLINE void find_bad(const void* data, int64_t count, Bits exponent, bool* bad) {
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(data) + static_cast<size_t>(i) * sizeof(Bits), sizeof(Bits));
    found |= static_cast<Bits>((bits & exponent) == exponent);
  }
  *bad = found != 0;
}

namespace {

YOKE_INLINE void find_bad_floats_body(const void* data, int64_t count, bool* bad) {
  find_bad<uint32_t>(data, count, 0x7f800000u, bad);
}
YOKE_INLINE void find_bad_doubles_body(const void* data, int64_t count, bool* bad) {
  find_bad<uint64_t>(data, count, 0x7ff0000000000000u, bad);
}
YOKE_KERNEL(find_bad_floats, (const void* data, int64_t count, bool* bad), (data, count, bad))
YOKE_KERNEL(find_bad_doubles, (const void* data, int64_t count, bool* bad), (data, count, bad))

}  // namespace

template <class T>
bool all_finite(const T* data, int64_t count) {
  bool bad = false;
  sizeof(T) == sizeof(float) ? find_bad_floats(data, count, &bad) : find_bad_doubles(data, count, &bad);
  return !bad;
}

template <class T>
double squared_distance(const T* a, const T* b, int64_t count) {
  constexpr int64_t kLanesHere = 8;  // independent partial sums
  double sums[kLanesHere] = {};
  int64_t i = 0;
  for (; i + kLanesHere <= count; i += kLanesHere) {
    for (int64_t lane = 0; lane < kLanesHere; ++lane) {
      double d = static_cast<double>(a[i + lane]) - static_cast<double>(b[i + lane]);
      sums[lane] += d * d;
    }
  }
  double total = 0;
  for (double sum : sums) total += sum;
  for (; i < count; ++i)
    total += (static_cast<double>(a[i]) - static_cast<double>(b[i])) *
             (static_cast<double>(a[i]) - static_cast<double>(b[i]));
  return total;
}

#define YOKE_FOR_TYPE(T)                                                                  \
  template void adamw(const AdamwStep&, double, const T*, const T*, T*, T*, T*, int64_t); \
  template void adagrad(const AdagradStep&, double, const T*, const T*, T*, T*, int64_t); \
  template void ftrl(const FtrlStep&, double, const T*, const T*, T*, T*, T*, int64_t);   \
  template void proximal(const ProximalStep&, double, const T*, const T*, T*, int64_t);   \
  template void lion(const LionStep&, double, const T*, const T*, T*, T*, int64_t);       \
  template void add_scaled(T*, const T*, double, int64_t);                                \
  template bool all_finite(const T*, int64_t);                                            \
  template double squared_distance(const T*, const T*, int64_t);
YOKE_FOR_TYPE(float)
YOKE_FOR_TYPE(double)
#undef YOKE_FOR_TYPE

}  // namespace yoke::kernels
