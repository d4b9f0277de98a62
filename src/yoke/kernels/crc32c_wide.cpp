// CRC32C by carry-less multiplication of 64 bytes at a time (x86_64 with VPCLMULQDQ): crc32c_folding.cpp
// explains folding. Four times as many bytes per multiplication leave nothing for the crc32 instruction to
// speed up.
#include "yoke/kernels/crc32c_kernels.h"
#include "yoke/kernels/crc32c_processor.h"

#if defined(__x86_64__)

#define YOKE_WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,avx,pclmul,sse4.2")))

namespace yoke::kernels::crc {
namespace {

constexpr size_t kVector = 64;
constexpr size_t kVectors = 8;
constexpr size_t kWideTurn = kVectors * kVector;
constexpr size_t kAhead = 2 * kWideTurn;  // further than the hardware prefetcher looks within a page

YOKE_WIDE YOKE_INLINE __m512i load(const uint8_t* data) {
  return _mm512_loadu_si512(data);
}

template <size_t kBytes>
YOKE_WIDE YOKE_INLINE __m512i fold_vector(__m512i accumulator, __m512i next) {
  using Factors = FoldFactors<kBytes>;
  const __m512i factors =
      _mm512_set4_epi64(static_cast<int64_t>(Factors::kLow), static_cast<int64_t>(Factors::kHigh),
                        static_cast<int64_t>(Factors::kLow), static_cast<int64_t>(Factors::kHigh));
  __m512i high = _mm512_clmulepi64_epi128(accumulator, factors, 0x00);
  __m512i low = _mm512_clmulepi64_epi128(accumulator, factors, 0x11);
  return _mm512_ternarylogic_epi64(high, low, next, 0x96);  // all three, exclusive
}

// The register after the bytes that one vector stands for.
YOKE_WIDE YOKE_INLINE uint64_t reduce(__m512i vector) {
  alignas(kVector) uint8_t lanes[kVector];
  _mm512_store_si512(lanes, vector);
  Lane all = fold<16>(load_lane(lanes + 32), load_lane(lanes + 48));
  all = fold<32>(load_lane(lanes + 16), all);
  all = fold<48>(load_lane(lanes), all);
  return step8(step8(0, low_word(all)), high_word(all));
}

}  // namespace

bool has_wide_folding() {
  return has_folding() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq");
}

YOKE_WIDE uint32_t by_wide_folding(const uint8_t* data, size_t bytes, uint32_t start) {
  if (bytes < 2 * kWideTurn) return by_folding(data, bytes, start);
  __m512i a[kVectors];
  YOKE_UNROLL
  for (size_t i = 0; i < kVectors; ++i) a[i] = load(data + i * kVector);
  a[0] = _mm512_xor_si512(a[0], _mm512_zextsi128_si512(first_word(start)));  // as if it came before
  for (data += kWideTurn, bytes -= kWideTurn; bytes >= kWideTurn; data += kWideTurn, bytes -= kWideTurn) {
    YOKE_UNROLL
    for (size_t i = 0; i < kVectors; ++i) {
      __builtin_prefetch(data + kAhead + i * kVector);
      a[i] = fold_vector<kWideTurn>(a[i], load(data + i * kVector));
    }
  }
  __m512i all = a[kVectors - 1];
  all = fold_vector<kVector>(a[6], all);
  all = fold_vector<2 * kVector>(a[5], all);
  all = fold_vector<3 * kVector>(a[4], all);
  all = fold_vector<4 * kVector>(a[3], all);
  all = fold_vector<5 * kVector>(a[2], all);
  all = fold_vector<6 * kVector>(a[1], all);
  all = fold_vector<7 * kVector>(a[0], all);
  return by_folding(data, bytes, static_cast<uint32_t>(reduce(all)));
}

}  // namespace yoke::kernels::crc

#else

namespace yoke::kernels::crc {

bool has_wide_folding() {
  return false;
}
uint32_t by_wide_folding(const uint8_t* data, size_t bytes, uint32_t crc) {
  return by_folding(data, bytes, crc);
}

}  // namespace yoke::kernels::crc

#endif
