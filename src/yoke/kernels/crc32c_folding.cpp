// CRC32C by carry-less multiplication and by the crc32 instruction at the same time (x86).
//
// The instruction processes 8 bytes per cycle on one port, two multiplications fold 16 bytes in two cycles on
// another. A block is therefore divided into two halves: six accumulators of 16 bytes process the first,
// three streams of the instruction the three thirds of the second, twelve cycles per iteration for both.
//
// Folding (Gopal et al., Intel 2009): an accumulator A represents A(x) times a power of x. Advancing it by D
// bits is a product with x^D modulo the polynomial, one for each of its two words H x^64 + L: H x^(64+D) + L
// x^D fits 128 bits again because the factors have 32. The words' bits are reversed, which shifts a product
// by one: the factors are x^(64+D-1) and x^(D-1).
#include "yoke/kernels/crc32c_kernels.h"
#include "yoke/kernels/crc32c_polynomial.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define YOKE_INLINE inline __attribute__((always_inline))
// Arrays that are walked so stay in registers, at every level of optimisation.
#define YOKE_UNROLL _Pragma("GCC unroll 8")
#define YOKE_FOLDING __attribute__((target("avx,pclmul,sse4.2")))

namespace yoke::kernels::crc {
namespace {

constexpr size_t kLane = 16;
constexpr size_t kAccumulators = 6;
constexpr size_t kTurn = kAccumulators * kLane;  // bytes folded, and bytes summed by instruction
constexpr size_t kStreams = 3;

// A factor in the upper half of a word, where its degree is below 32.
constexpr uint64_t factor(uint64_t power) {
  return uint64_t{power_of_x(power)} << 32;
}

template <size_t kBytes>
YOKE_FOLDING YOKE_INLINE __m128i fold(__m128i accumulator, __m128i next) {
  constexpr uint64_t kBits = 8 * kBytes;
  constexpr uint64_t kHigh = factor(64 + kBits - 1), kLow = factor(kBits - 1);
  const __m128i factors = _mm_set_epi64x(static_cast<int64_t>(kLow), static_cast<int64_t>(kHigh));
  __m128i high = _mm_clmulepi64_si128(accumulator, factors, 0x00);
  __m128i low = _mm_clmulepi64_si128(accumulator, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(high, next), low);
}

YOKE_FOLDING YOKE_INLINE __m128i load_lane(const uint8_t* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

YOKE_FOLDING YOKE_INLINE uint64_t sum_word(const uint8_t* data, uint64_t crc) {
  uint64_t value;
  std::memcpy(&value, data, 8);
  return _mm_crc32_u64(crc, value);
}

// What the register becomes after `kZeros` zero bytes, before the instruction has reduced it. The product of
// two words of 32 bits in the lower halves is short of 33 powers of x, of which the instruction adds 32 and
// the reversal one.
template <size_t kZeros>
YOKE_FOLDING YOKE_INLINE __m128i shifted(uint64_t crc) {
  constexpr uint32_t kFactor = power_of_x(8 * kZeros - 33);
  return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(crc)),
                              _mm_cvtsi64_si128(int64_t{kFactor}), 0x00);
}

struct Sums {
  uint64_t first = 0, second = 0, third = 0;
};

template <size_t kStream>
YOKE_FOLDING YOKE_INLINE void sum_turn(const uint8_t* from, Sums& sums) {
  YOKE_UNROLL
  for (size_t i = 0; i < kTurn / kStreams; i += 8) {
    sums.first = sum_word(from + i, sums.first);
    sums.second = sum_word(from + kStream + i, sums.second);
    sums.third = sum_word(from + 2 * kStream + i, sums.third);
  }
}

// Four positions of a block are read at once, too many for the hardware prefetcher.
YOKE_FOLDING YOKE_INLINE void fetch_turn(const uint8_t* ahead) {
  for (size_t i = 0; i < 2 * kTurn; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T0);
}

// One block of kTurns turns; the first half is folded.
template <size_t kTurns>
YOKE_FOLDING YOKE_INLINE uint64_t fold_block(const uint8_t* data, uint64_t crc) {
  constexpr size_t kStream = kTurns * kTurn / kStreams;
  const uint8_t* streams = data + kTurns * kTurn;
  Sums sums;
  __m128i a[kAccumulators];
  YOKE_UNROLL
  for (size_t i = 0; i < kAccumulators; ++i) a[i] = load_lane(data + i * kLane);
  a[0] = _mm_xor_si128(a[0], _mm_cvtsi64_si128(static_cast<int64_t>(crc)));  // as if it came before
  sum_turn<kStream>(streams, sums);
  const uint8_t* next_block = streams + kTurns * kTurn;
  for (size_t turn = 1; turn < kTurns; ++turn) {
    if constexpr (kTurns >= 64) fetch_turn(next_block + turn * 2 * kTurn);
    data += kTurn;
    streams += kTurn / kStreams;
    YOKE_UNROLL
    for (size_t i = 0; i < kAccumulators; ++i) a[i] = fold<kTurn>(a[i], load_lane(data + i * kLane));
    sum_turn<kStream>(streams, sums);
  }
  __m128i all = a[5];
  all = fold<kLane>(a[4], all);
  all = fold<2 * kLane>(a[3], all);
  all = fold<3 * kLane>(a[2], all);
  all = fold<4 * kLane>(a[1], all);
  all = fold<5 * kLane>(a[0], all);
  crc = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(all)));
  crc = _mm_crc32_u64(crc, static_cast<uint64_t>(_mm_extract_epi64(all, 1)));
  __m128i joined = _mm_xor_si128(shifted<2 * kStream>(sums.first), shifted<kStream>(sums.second));
  joined = _mm_xor_si128(joined, shifted<3 * kStream>(crc));
  return _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(joined))) ^ sums.third;
}

template <size_t kTurns>
YOKE_FOLDING YOKE_INLINE uint64_t fold_blocks(const uint8_t*& data, size_t& bytes, uint64_t crc) {
  constexpr size_t kBytes = 2 * kTurns * kTurn;
  for (; bytes >= kBytes; bytes -= kBytes, data += kBytes) crc = fold_block<kTurns>(data, crc);
  return crc;
}

}  // namespace

bool has_folding() {
  return __builtin_cpu_supports("avx") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("sse4.2");
}

YOKE_FOLDING uint32_t by_folding(const uint8_t* data, size_t bytes, uint32_t start) {
  if (bytes < 2 * kTurn) return by_instruction(data, bytes, start);
  uint64_t crc = start;
  crc = fold_blocks<64>(data, bytes, crc);
  crc = fold_blocks<8>(data, bytes, crc);
  crc = fold_blocks<1>(data, bytes, crc);
  return by_instruction(data, bytes, static_cast<uint32_t>(crc));
}

}  // namespace yoke::kernels::crc

#else

namespace yoke::kernels::crc {

bool has_folding() {
  return false;
}
uint32_t by_folding(const uint8_t* data, size_t bytes, uint32_t crc) {
  return by_table(data, bytes, crc);
}

}  // namespace yoke::kernels::crc

#endif
