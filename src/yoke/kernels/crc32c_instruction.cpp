// CRC32C by the CPU's instruction: SSE4.2, or ARMv8's CRC extension.
#include <array>
#include <cstring>

#include "yoke/kernels/crc32c_kernels.h"
#include "yoke/kernels/crc32c_polynomial.h"
#include "yoke/kernels/crc32c_processor.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)

namespace yoke::kernels::crc {
namespace {

// The register after a fixed number of zero bytes. It is linear in the register, so four tables, one per
// byte, give it: two separate checksums are combined by shift(first) ^ second.
struct Shift {
  std::array<std::array<uint32_t, 256>, 4> tables;

  explicit Shift(size_t zeros) {
    std::array<uint32_t, 32> of_bit;
    for (size_t bit = 0; bit < 32; ++bit) {
      of_bit[bit] = multiply(1u << bit, power_of_x(8 * zeros));
    }
    for (size_t byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        uint32_t crc = 0;
        for (size_t bit = 0; bit < 8; ++bit) crc ^= ((value >> bit) & 1u) ? of_bit[8 * byte + bit] : 0u;
        tables[byte][value] = crc;
      }
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return tables[0][crc & 0xffu] ^ tables[1][(crc >> 8) & 0xffu] ^ tables[2][(crc >> 16) & 0xffu] ^
           tables[3][crc >> 24];
  }
};

#if defined(__x86_64__)
bool supported() {
  return __builtin_cpu_supports("sse4.2");
}
#elif defined(__linux__)
bool supported() {
  return (getauxval(AT_HWCAP) & (1ul << 7)) != 0;  // HWCAP_CRC32
}
#else
bool supported() {
  return true;  // every other aarch64 system we know requires ARMv8.1
}
#endif

template <bool kCopies>
YOKE_CRC YOKE_INLINE uint64_t word(const uint8_t* from, uint8_t* to, uint64_t crc) {
  uint64_t value;
  std::memcpy(&value, from, 8);
  if constexpr (kCopies) std::memcpy(to, &value, 8);
  return step8(crc, value);
}

// The instruction has a latency of three cycles and a throughput of one: three thirds of a block run in
// parallel.
template <bool kCopies, size_t kThird>
YOKE_CRC YOKE_INLINE uint64_t blocks(const uint8_t*& from, uint8_t*& to, size_t& bytes, uint64_t crc) {
  static const Shift shift(kThird);
  while (bytes >= 3 * kThird) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kThird; i += 8) {
      crc = word<kCopies>(from + i, to + i, crc);
      second = word<kCopies>(from + kThird + i, to + kThird + i, second);
      third = word<kCopies>(from + 2 * kThird + i, to + 2 * kThird + i, third);
    }
    crc = shift(shift(static_cast<uint32_t>(crc)) ^ static_cast<uint32_t>(second)) ^ third;
    from += 3 * kThird;
    if constexpr (kCopies) to += 3 * kThird;
    bytes -= 3 * kThird;
  }
  return crc;
}

template <bool kCopies>
YOKE_CRC uint32_t sum(const uint8_t* from, uint8_t* to, size_t bytes, uint32_t start) {
  uint64_t crc = start;
  crc = blocks<kCopies, 4096>(from, to, bytes, crc);
  crc = blocks<kCopies, 256>(from, to, bytes, crc);
  for (; bytes >= 8; bytes -= 8, from += 8) {
    crc = word<kCopies>(from, to, crc);
    if constexpr (kCopies) to += 8;
  }
  for (; bytes > 0; --bytes, ++from) {
    if constexpr (kCopies) *to++ = *from;
    crc = step1(crc, *from);
  }
  return static_cast<uint32_t>(crc);
}

}  // namespace

bool has_instruction() {
  return supported();
}
uint32_t by_instruction(const uint8_t* data, size_t bytes, uint32_t crc) {
  return sum<false>(data, nullptr, bytes, crc);
}
uint32_t copy_by_instruction(uint8_t* to, const uint8_t* data, size_t bytes, uint32_t crc) {
  return sum<true>(data, to, bytes, crc);
}

}  // namespace yoke::kernels::crc

#else

namespace yoke::kernels::crc {

bool has_instruction() {
  return false;
}
uint32_t by_instruction(const uint8_t* data, size_t bytes, uint32_t crc) {
  return by_table(data, bytes, crc);
}
uint32_t copy_by_instruction(uint8_t* to, const uint8_t* data, size_t bytes, uint32_t crc) {
  if (bytes > 0) std::memcpy(to, data, bytes);
  return by_table(data, bytes, crc);
}

}  // namespace yoke::kernels::crc

#endif
