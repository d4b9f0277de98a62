#include "yoke/kernels/reduce_half.h"

#include <cstring>

#include "yoke/kernels/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace yoke::kernels {
namespace {

uint16_t half_at(const void* from, size_t i) {
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(from) + 2 * i, 2);
  return bits;
}
void put_half(void* to, size_t i, uint16_t bits) {
  std::memcpy(static_cast<char*>(to) + 2 * i, &bits, 2);
}

void widen_tail(float* to, const void* from, size_t i, size_t count) {
  for (; i < count; ++i) to[i] = float_of_fp16(half_at(from, i));
}
void narrow_tail(void* to, const float* from, size_t i, size_t count) {
  for (; i < count; ++i) put_half(to, i, fp16_of_float(from[i]));
}

using HalfVec = uint16_t __attribute__((vector_size(kLanes * 2)));
using LooseHalfVec = uint16_t __attribute__((vector_size(kLanes * 2), aligned(1), may_alias));
using WordVec = uint32_t __attribute__((vector_size(kLanes * 4)));

YOKE_INLINE void widen_bf16_body(float* to, const void* from, size_t count) {
  const char* bytes = static_cast<const char*>(from);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    HalfVec half = *reinterpret_cast<const LooseHalfVec*>(bytes + 2 * i);
    store(to + i, (Vec)(__builtin_convertvector(half, WordVec) << 16));
  }
  for (; i < count; ++i) to[i] = float_of_bf16(half_at(from, i));
}

YOKE_INLINE void narrow_bf16_body(void* to, const float* from, size_t count) {
  char* bytes = static_cast<char*>(to);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vec value = load(from + i);
    WordVec bits = (WordVec)value;
    WordVec is_nan = (WordVec)(value != value);
    WordVec rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    WordVec quiet = (bits >> 16) | 0x40u;
    WordVec chosen = (is_nan & quiet) | (~is_nan & rounded);
    *reinterpret_cast<LooseHalfVec*>(bytes + 2 * i) = __builtin_convertvector(chosen, HalfVec);
  }
  for (; i < count; ++i) put_half(to, i, bf16_of_float(from[i]));
}

#if defined(__x86_64__)
using Widen = void (*)(float*, const void*, size_t);
using Narrow = void (*)(void*, const float*, size_t);

__attribute__((target("avx512f"))) void widen_fp16_avx512(float* to, const void* from, size_t count) {
  const char* bytes = static_cast<const char*>(from);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 2 * i));
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(half));
  }
  widen_tail(to, from, i, count);
}
__attribute__((target("avx512f"))) void narrow_fp16_avx512(void* to, const float* from, size_t count) {
  char* bytes = static_cast<char*>(to);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 2 * i), half);
  }
  narrow_tail(to, from, i, count);
}

__attribute__((target("avx,f16c"))) void widen_fp16_f16c(float* to, const void* from, size_t count) {
  const char* bytes = static_cast<const char*>(from);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
  }
  widen_tail(to, from, i, count);
}
__attribute__((target("avx,f16c"))) void narrow_fp16_f16c(void* to, const float* from, size_t count) {
  char* bytes = static_cast<char*>(to);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + 2 * i), half);
  }
  narrow_tail(to, from, i, count);
}

void widen_fp16_plain(float* to, const void* from, size_t count) {
  widen_tail(to, from, 0, count);
}
void narrow_fp16_plain(void* to, const float* from, size_t count) {
  narrow_tail(to, from, 0, count);
}

bool has_f16c() {  // not every compiler we support knows the name "f16c" here; AVX2 implies it
  return __builtin_cpu_supports("avx2");
}
#endif

}  // namespace

YOKE_KERNEL(widen_bf16, (float* to, const void* from, size_t count), (to, from, count))
YOKE_KERNEL(narrow_bf16, (void* to, const float* from, size_t count), (to, from, count))

#if defined(__x86_64__)
void widen_fp16(float* to, const void* from, size_t count) {
  static const Widen chosen = __builtin_cpu_supports("avx512f") ? widen_fp16_avx512
                              : has_f16c()                      ? widen_fp16_f16c
                                                                : widen_fp16_plain;
  chosen(to, from, count);
}
void narrow_fp16(void* to, const float* from, size_t count) {
  static const Narrow chosen = __builtin_cpu_supports("avx512f") ? narrow_fp16_avx512
                               : has_f16c()                      ? narrow_fp16_f16c
                                                                 : narrow_fp16_plain;
  chosen(to, from, count);
}
#elif defined(__aarch64__)
void widen_fp16(float* to, const void* from, size_t count) {
  const uint8_t* bytes = static_cast<const uint8_t*>(from);
  size_t i = 0;
  for (; i + 4 <= count; i += 4) vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(bytes + 2 * i))));
  widen_tail(to, from, i, count);
}
void narrow_fp16(void* to, const float* from, size_t count) {
  uint8_t* bytes = static_cast<uint8_t*>(to);
  size_t i = 0;
  for (; i + 4 <= count; i += 4)
    vst1_u8(bytes + 2 * i, vreinterpret_u8_f16(vcvt_f16_f32(vld1q_f32(from + i))));
  narrow_tail(to, from, i, count);
}
#else
void widen_fp16(float* to, const void* from, size_t count) {
  widen_tail(to, from, 0, count);
}
void narrow_fp16(void* to, const float* from, size_t count) {
  narrow_tail(to, from, 0, count);
}
#endif

}  // namespace yoke::kernels
