// CRC32C by carry-less multiplication and by the crc32 instruction at the same time (x86_64, aarch64).
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
#include "yoke/kernels/crc32c_processor.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)

namespace yoke::kernels::crc {
namespace {

constexpr size_t kLane = 16;
constexpr size_t kAccumulators = 6;
constexpr size_t kTurn = kAccumulators * kLane;  // bytes folded, and bytes summed by instruction
constexpr size_t kStreams = 3;

YOKE_FOLDING YOKE_INLINE uint64_t sum_word(const uint8_t* data, uint64_t crc) {
  uint64_t value;
  std::memcpy(&value, data, 8);
  return step8(crc, value);
}

// What the register becomes after `kZeros` zero bytes, before the instruction has reduced it. The product of
// two words of 32 bits in the lower halves is short of 33 powers of x, of which the instruction adds 32 and
// the reversal one.
template <size_t kZeros>
YOKE_FOLDING YOKE_INLINE Lane shifted(uint64_t crc) {
  return multiply_low(first_word(crc), power_of_x(8 * kZeros - 33));
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
  for (size_t i = 0; i < 2 * kTurn; i += 64) __builtin_prefetch(ahead + i);
}

// One block of kTurns turns; the first half is folded.
template <size_t kTurns>
YOKE_FOLDING YOKE_INLINE uint64_t fold_block(const uint8_t* data, uint64_t crc) {
  constexpr size_t kStream = kTurns * kTurn / kStreams;
  const uint8_t* streams = data + kTurns * kTurn;
  Sums sums;
  Lane a[kAccumulators];
  YOKE_UNROLL
  for (size_t i = 0; i < kAccumulators; ++i) a[i] = load_lane(data + i * kLane);
  a[0] = add(a[0], first_word(crc));  // as if it came before
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
  Lane all = a[5];
  all = fold<kLane>(a[4], all);
  all = fold<2 * kLane>(a[3], all);
  all = fold<3 * kLane>(a[2], all);
  all = fold<4 * kLane>(a[1], all);
  all = fold<5 * kLane>(a[0], all);
  crc = step8(0, low_word(all));
  crc = step8(crc, high_word(all));
  Lane joined = add(shifted<2 * kStream>(sums.first), shifted<kStream>(sums.second));
  joined = add(joined, shifted<3 * kStream>(crc));
  return step8(0, low_word(joined)) ^ sums.third;
}

template <size_t kTurns>
YOKE_FOLDING YOKE_INLINE uint64_t fold_blocks(const uint8_t*& data, size_t& bytes, uint64_t crc) {
  constexpr size_t kBytes = 2 * kTurns * kTurn;
  for (; bytes >= kBytes; bytes -= kBytes, data += kBytes) crc = fold_block<kTurns>(data, crc);
  return crc;
}

}  // namespace

#if defined(__x86_64__)
bool has_folding() {
  return __builtin_cpu_supports("avx") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("sse4.2");
}
#elif defined(__linux__)
bool has_folding() {
  constexpr unsigned long kPmull = 1ul << 4, kCrc32 = 1ul << 7;  // HWCAP_PMULL, HWCAP_CRC32
  return (getauxval(AT_HWCAP) & (kPmull | kCrc32)) == (kPmull | kCrc32);
}
#else
bool has_folding() {
  return false;
}
#endif

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
