// The processor's instructions for CRC32C: the crc32 instruction (SSE4.2, ARMv8's CRC extension) and
// carry-less multiplication (PCLMULQDQ, PMULL). A function that uses them is marked YOKE_CRC or YOKE_FOLDING;
// call it only if has_instruction() or has_folding().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "yoke/kernels/crc32c_polynomial.h"

#define YOKE_INLINE inline __attribute__((always_inline))
// Arrays that are walked so stay in registers, at every level of optimisation.
#define YOKE_UNROLL _Pragma("GCC unroll 8")

#if defined(__x86_64__)
#include <immintrin.h>
#define YOKE_CRC __attribute__((target("sse4.2")))
#define YOKE_FOLDING __attribute__((target("avx,pclmul,sse4.2")))
#elif defined(__aarch64__)
#include <arm_neon.h>
// Instructions in assembler: compilers disagree about how a function asks for them.
#define YOKE_CRC
#define YOKE_FOLDING
#endif

namespace yoke::kernels::crc {

// A factor in the upper half of a word, where its degree is below 32.
constexpr uint64_t fold_factor(uint64_t power) {
  return uint64_t{power_of_x(power)} << 32;
}

// What moves the two words of 16 bytes forward by kBytes.
template <size_t kBytes>
struct FoldFactors {
  static constexpr uint64_t kHigh = fold_factor(8 * kBytes + 63), kLow = fold_factor(8 * kBytes - 1);
};

#if defined(__x86_64__)

using Lane = __m128i;

YOKE_CRC YOKE_INLINE uint64_t step8(uint64_t crc, uint64_t word) {
  return _mm_crc32_u64(crc, word);
}
YOKE_CRC YOKE_INLINE uint64_t step1(uint64_t crc, uint8_t byte) {
  return _mm_crc32_u8(static_cast<uint32_t>(crc), byte);
}
YOKE_FOLDING YOKE_INLINE Lane load_lane(const uint8_t* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}
YOKE_FOLDING YOKE_INLINE Lane first_word(uint64_t word) {
  return _mm_cvtsi64_si128(static_cast<int64_t>(word));
}
YOKE_FOLDING YOKE_INLINE uint64_t low_word(Lane lane) {
  return static_cast<uint64_t>(_mm_cvtsi128_si64(lane));
}
YOKE_FOLDING YOKE_INLINE uint64_t high_word(Lane lane) {
  return static_cast<uint64_t>(_mm_extract_epi64(lane, 1));
}
YOKE_FOLDING YOKE_INLINE Lane add(Lane a, Lane b) {
  return _mm_xor_si128(a, b);
}
YOKE_FOLDING YOKE_INLINE Lane multiply_low(Lane a, uint64_t factor) {
  return _mm_clmulepi64_si128(a, first_word(factor), 0x00);
}
template <size_t kBytes>
YOKE_FOLDING YOKE_INLINE Lane fold(Lane accumulator, Lane next) {
  using Factors = FoldFactors<kBytes>;
  const Lane factors =
      _mm_set_epi64x(static_cast<int64_t>(Factors::kLow), static_cast<int64_t>(Factors::kHigh));
  Lane high = _mm_clmulepi64_si128(accumulator, factors, 0x00);
  Lane low = _mm_clmulepi64_si128(accumulator, factors, 0x11);
  return add(add(high, next), low);
}

#elif defined(__aarch64__)

using Lane = uint64x2_t;

YOKE_INLINE uint64_t step8(uint64_t crc, uint64_t word) {
  uint32_t next;
  asm(".arch_extension crc\n\tcrc32cx %w0, %w1, %x2"
      : "=r"(next)
      : "r"(static_cast<uint32_t>(crc)), "r"(word));
  return next;
}
YOKE_INLINE uint64_t step1(uint64_t crc, uint8_t byte) {
  uint32_t next;
  asm(".arch_extension crc\n\tcrc32cb %w0, %w1, %w2"
      : "=r"(next)
      : "r"(static_cast<uint32_t>(crc)), "r"(static_cast<uint32_t>(byte)));
  return next;
}
YOKE_INLINE Lane load_lane(const uint8_t* data) {
  return vreinterpretq_u64_u8(vld1q_u8(data));
}
YOKE_INLINE Lane first_word(uint64_t word) {
  return vsetq_lane_u64(word, vdupq_n_u64(0), 0);
}
YOKE_INLINE uint64_t low_word(Lane lane) {
  return vgetq_lane_u64(lane, 0);
}
YOKE_INLINE uint64_t high_word(Lane lane) {
  return vgetq_lane_u64(lane, 1);
}
YOKE_INLINE Lane add(Lane a, Lane b) {
  return veorq_u64(a, b);
}
YOKE_INLINE Lane multiply_low(Lane a, Lane b) {
  Lane product;
  asm(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(product) : "w"(a), "w"(b));
  return product;
}
YOKE_INLINE Lane multiply_high(Lane a, Lane b) {
  Lane product;
  asm(".arch_extension aes\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(product) : "w"(a), "w"(b));
  return product;
}
YOKE_INLINE Lane multiply_low(Lane a, uint64_t factor) {
  return multiply_low(a, first_word(factor));
}
template <size_t kBytes>
YOKE_INLINE Lane fold(Lane accumulator, Lane next) {
  using Factors = FoldFactors<kBytes>;
  const Lane factors = vcombine_u64(vcreate_u64(Factors::kHigh), vcreate_u64(Factors::kLow));
  return add(add(multiply_low(accumulator, factors), next), multiply_high(accumulator, factors));
}

#endif

}  // namespace yoke::kernels::crc
