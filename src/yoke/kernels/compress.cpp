#include "yoke/kernels/compress.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

constexpr int64_t kStep = 16;  // values per loop iteration: compilers vectorise them
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using SignTable = std::array<std::array<float, 8>, 256>;

constexpr SignTable make_sign_table() {
  SignTable table{};
  for (size_t byte = 0; byte < 256; ++byte)
    for (size_t bit = 0; bit < 8; ++bit) table[byte][bit] = (byte >> bit) & 1 ? -1.0f : 1.0f;
  return table;
}
alignas(64) constexpr SignTable kSigns = make_sign_table();

template <class T>
YOKE_INLINE float mean_magnitude(const T* x, int64_t count) {
  T sums[kStep] = {};
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep)
    for (int64_t lane = 0; lane < kStep; ++lane) sums[lane] += std::abs(x[i + lane]);
  for (; i < count; ++i) sums[0] += std::abs(x[i]);
  double sum = 0;
  for (T lane : sums) sum += static_cast<double>(lane);
  float mean = static_cast<float>(sum / static_cast<double>(count));
  return std::isfinite(mean) ? mean : kNaN;
}

YOKE_INLINE uint32_t sign_bit(float x) {
  return std::bit_cast<uint32_t>(x) >> 31;
}
YOKE_INLINE uint32_t sign_bit(double x) {
  return static_cast<uint32_t>(std::bit_cast<uint64_t>(x) >> 63);
}

template <class T>
YOKE_INLINE void pack_any(const T* x, int64_t count, float* scales, uint8_t* bits) {
  for (int64_t begin = 0; begin < count; begin += kSignChunk, ++scales) {
    int64_t length = std::min(kSignChunk, count - begin);
    const T* from = x + begin;
    uint8_t* to = bits + begin / 8;
    *scales = mean_magnitude(from, length);
    int64_t i = 0;
    for (; i + 8 <= length; i += 8) {
      uint32_t byte = 0;
      for (uint32_t bit = 0; bit < 8; ++bit) byte |= sign_bit(from[i + bit]) << bit;
      to[i / 8] = static_cast<uint8_t>(byte);
    }
    if (i == length) continue;
    uint32_t byte = 0;
    for (int64_t bit = 0; i + bit < length; ++bit) byte |= sign_bit(from[i + bit]) << bit;
    to[i / 8] = static_cast<uint8_t>(byte);
  }
}

template <class T>
YOKE_INLINE void add_signs_any(T* out, const uint8_t* bits, const float* scales, int64_t count,
                               double factor) {
  for (int64_t begin = 0; begin < count; begin += kSignChunk, ++scales) {
    int64_t length = std::min(kSignChunk, count - begin);
    T scale = static_cast<T>(factor) * static_cast<T>(*scales);
    T* to = out + begin;
    const uint8_t* from = bits + begin / 8;
    int64_t i = 0;
    for (; i + 8 <= length; i += 8) {
      const float* signs = kSigns[from[i / 8]].data();
      for (int64_t bit = 0; bit < 8; ++bit) to[i + bit] += scale * static_cast<T>(signs[bit]);
    }
    for (; i < length; ++i) to[i] += scale * static_cast<T>(kSigns[from[i / 8]][static_cast<size_t>(i % 8)]);
  }
}

// The largest magnitude; NaN if a value is not finite.
template <class T>
YOKE_INLINE float largest_magnitude(const T* x, int64_t count) {
  T largest[kStep] = {};
  T spoilt[kStep] = {};  // 0 * x is NaN for non-finite x
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep)
    for (int64_t lane = 0; lane < kStep; ++lane) {
      T magnitude = std::abs(x[i + lane]);
      largest[lane] = magnitude > largest[lane] ? magnitude : largest[lane];
      spoilt[lane] += magnitude * 0;
    }
  for (; i < count; ++i) {
    T magnitude = std::abs(x[i]);
    largest[0] = magnitude > largest[0] ? magnitude : largest[0];
    spoilt[0] += magnitude * 0;
  }
  float result = 0;
  for (int64_t lane = 0; lane < kStep; ++lane) {
    if (spoilt[lane] != 0) return kNaN;
    result = std::max(result, static_cast<float>(largest[lane]));
  }
  return std::isfinite(result) ? result : kNaN;
}

// Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the mantissa.
YOKE_INLINE int8_t rounded(float x) {
  return static_cast<int8_t>(std::bit_cast<int32_t>(x + 12582912.0f));
}

template <class T>
YOKE_INLINE void quantise_any(const T* x, int64_t count, float* scales, int8_t* quanta) {
  for (int64_t begin = 0; begin < count; begin += kQuantumChunk, ++scales) {
    int64_t length = std::min(kQuantumChunk, count - begin);
    float largest = largest_magnitude(x + begin, length);
    bool usable = largest >= 1e-30f;  // below, 1 / scale could overflow; NaN is not usable either
    *scales = usable ? largest / 127 : std::isnan(largest) ? kNaN : 0.0f;
    T inverse = usable ? static_cast<T>(127) / static_cast<T>(largest) : 0;
    const T* from = x + begin;
    int8_t* to = quanta + begin;
    if (!usable)
      std::fill(to, to + length, int8_t{0});
    else
      for (int64_t i = 0; i < length; ++i) to[i] = rounded(static_cast<float>(from[i] * inverse));
  }
}

template <class T>
YOKE_INLINE void add_quanta_any(T* out, const int8_t* quanta, const float* scales, int64_t count,
                                double factor) {
  for (int64_t begin = 0; begin < count; begin += kQuantumChunk, ++scales) {
    int64_t length = std::min(kQuantumChunk, count - begin);
    T scale = static_cast<T>(factor) * static_cast<T>(*scales);
    T* to = out + begin;
    const int8_t* from = quanta + begin;
    for (int64_t i = 0; i < length; ++i) to[i] += scale * static_cast<T>(from[i]);
  }
}

template <class T>
YOKE_INLINE void low_rank_any(const T* left, const T* right, T* out, int64_t rows, int64_t columns,
                              int64_t rank) {
  constexpr int64_t kBlock = 512;  // columns that stay in the L1 cache with their factors
  for (int64_t first = 0; first < columns; first += kBlock) {
    int64_t length = std::min(kBlock, columns - first);
    for (int64_t row = 0; row < rows; ++row) {
      T* to = out + row * columns + first;
      T scale = left[row];
      const T* from = right + first;
      for (int64_t i = 0; i < length; ++i) to[i] = scale * from[i];
      for (int64_t k = 1; k < rank; ++k) {
        scale = left[k * rows + row];
        from = right + k * columns + first;
        for (int64_t i = 0; i < length; ++i) to[i] += scale * from[i];
      }
    }
  }
}

#define YOKE_BODY(name, any, T, parameters, arguments) \
  YOKE_INLINE void name##_body parameters {            \
    any<T> arguments;                                  \
  }                                                    \
  YOKE_KERNEL(name, parameters, arguments)

#define YOKE_FOR_BOTH(T)                                                                               \
  YOKE_BODY(pack_##T, pack_any, T, (const T* x, int64_t count, float* scales, uint8_t* bits),          \
            (x, count, scales, bits))                                                                  \
  YOKE_BODY(add_signs_##T, add_signs_any, T,                                                           \
            (T * out, const uint8_t* bits, const float* scales, int64_t count, double factor),         \
            (out, bits, scales, count, factor))                                                        \
  YOKE_BODY(quantise_##T, quantise_any, T, (const T* x, int64_t count, float* scales, int8_t* quanta), \
            (x, count, scales, quanta))                                                                \
  YOKE_BODY(add_quanta_##T, add_quanta_any, T,                                                         \
            (T * out, const int8_t* quanta, const float* scales, int64_t count, double factor),        \
            (out, quanta, scales, count, factor))                                                      \
  YOKE_BODY(low_rank_##T, low_rank_any, T,                                                             \
            (const T* left, const T* right, T* out, int64_t rows, int64_t columns, int64_t rank),      \
            (left, right, out, rows, columns, rank))

YOKE_FOR_BOTH(float)
YOKE_FOR_BOTH(double)

}  // namespace

void pack_signs(const float* x, int64_t count, float* scales, uint8_t* bits) {
  pack_float(x, count, scales, bits);
}
void pack_signs(const double* x, int64_t count, float* scales, uint8_t* bits) {
  pack_double(x, count, scales, bits);
}
void add_signs(float* out, const uint8_t* bits, const float* scales, int64_t count, double factor) {
  add_signs_float(out, bits, scales, count, factor);
}
void add_signs(double* out, const uint8_t* bits, const float* scales, int64_t count, double factor) {
  add_signs_double(out, bits, scales, count, factor);
}
void quantise(const float* x, int64_t count, float* scales, int8_t* quanta) {
  quantise_float(x, count, scales, quanta);
}
void quantise(const double* x, int64_t count, float* scales, int8_t* quanta) {
  quantise_double(x, count, scales, quanta);
}
void add_quanta(float* out, const int8_t* quanta, const float* scales, int64_t count, double factor) {
  add_quanta_float(out, quanta, scales, count, factor);
}
void add_quanta(double* out, const int8_t* quanta, const float* scales, int64_t count, double factor) {
  add_quanta_double(out, quanta, scales, count, factor);
}
void low_rank_product(const float* left, const float* right, float* out, int64_t rows, int64_t columns,
                      int64_t rank) {
  low_rank_float(left, right, out, rows, columns, rank);
}
void low_rank_product(const double* left, const double* right, double* out, int64_t rows, int64_t columns,
                      int64_t rank) {
  low_rank_double(left, right, out, rows, columns, rank);
}

}  // namespace yoke::kernels
