// Float vectors for kernels, without intrinsics: the compilers' vector extension, and run-time selection of
// the instruction set.
//
// A kernel is written once as an always-inline `name_body`; YOKE_KERNEL(name, ...) compiles it for AVX-512,
// AVX2 and the compiler's default, and defines `name`, which runs the best one this CPU supports. CPUs other
// than x86 use the default (NEON on aarch64).
#pragma once

#include <cstdint>
#include <cstring>

// Vectors never cross a call: everything that takes or returns one is inlined.
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define YOKE_INLINE inline __attribute__((always_inline))

namespace yoke::kernels {

#if defined(__x86_64__)
inline constexpr int64_t kLanes = 16;
#else
inline constexpr int64_t kLanes = 8;  // a vector is two NEON registers; more would spill
#endif

using Vec = float __attribute__((vector_size(kLanes * 4)));
using IntVec = int32_t __attribute__((vector_size(kLanes * 4)));
using LooseVec = float __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

YOKE_INLINE Vec load(const float* p) {
  return *reinterpret_cast<const LooseVec*>(p);
}
YOKE_INLINE void store(float* p, const Vec& v) {
  *reinterpret_cast<LooseVec*>(p) = v;
}
YOKE_INLINE Vec broadcast(float value) {
  return value - Vec{};
}

// The first `count` lanes from memory, the others 0; and the inverse.
YOKE_INLINE Vec load_some(const float* p, int64_t count) {
  Vec v{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}
YOKE_INLINE void store_some(float* p, const Vec& v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
}

YOKE_INLINE Vec select(const IntVec& mask, const Vec& yes, const Vec& no) {
  return (Vec)(((IntVec)yes & mask) | ((IntVec)no & ~mask));
}
// A NaN in the second argument (the data) propagates.
YOKE_INLINE Vec at_least(const Vec& low, const Vec& x) {
  return select((IntVec)(x < low), low, x);
}
YOKE_INLINE Vec at_most(const Vec& high, const Vec& x) {
  return select((IntVec)(x > high), high, x);
}

YOKE_INLINE float sum_of(const Vec& v) {
  float sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

// e^x, relative error below 2e-7. Clamped below -87.3 and above 88.3 (about 1e-38, 2e38); NaN stays NaN.
YOKE_INLINE Vec exponential(const Vec& argument) {
  Vec x = at_most(broadcast(88.3f), at_least(broadcast(-87.3f), argument));
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the mantissa
  Vec n = (x * 1.44269504088896341f + kRound) - kRound;
  Vec f = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  Vec p = f * 1.9875691500e-4f + 1.3981999507e-3f;      // Cephes expf
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * (f * f) + f + 1.0f;
  IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
  return p * (Vec)exponent;
}

}  // namespace yoke::kernels

#if defined(__x86_64__)
#define YOKE_KERNEL(name, parameters, arguments)                                                           \
  __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) static void name##_avx512 parameters { \
    name##_body arguments;                                                                                 \
  }                                                                                                        \
  __attribute__((target("avx2,fma"))) static void name##_avx2 parameters {                                 \
    name##_body arguments;                                                                                 \
  }                                                                                                        \
  static void name##_default parameters {                                                                  \
    name##_body arguments;                                                                                 \
  }                                                                                                        \
  void name parameters {                                                                                   \
    static void(*const chosen) parameters =                                                                \
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&                         \
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")                   \
            ? name##_avx512                                                                                \
        : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? name##_avx2                    \
                                                                          : name##_default;                \
    chosen arguments;                                                                                      \
  }
#else
#define YOKE_KERNEL(name, parameters, arguments) \
  void name parameters {                         \
    name##_body arguments;                       \
  }
#endif
