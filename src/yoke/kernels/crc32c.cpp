#include "yoke/kernels/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define YOKE_INLINE inline __attribute__((always_inline))

namespace yoke::kernels {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // 0x1edc6f41 with its bits reversed

using Table = std::array<uint32_t, 256>;

constexpr Table make_byte_table() {
  Table table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? kPolynomial : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr Table kByteTable = make_byte_table();

uint32_t plain(const uint8_t* data, size_t bytes, uint32_t crc) {
  for (size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ kByteTable[(crc ^ data[i]) & 0xffu];
  return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)

// What a register becomes after a fixed number of zero bytes. It is linear in the register, so that four
// tables, one for each of its bytes, give it: two checksums made apart are joined by shift(first) ^ second.
struct Shift {
  std::array<Table, 4> tables;

  explicit Shift(size_t zeros) {
    std::array<uint32_t, 32> of_bit;
    for (size_t bit = 0; bit < 32; ++bit) {
      uint32_t crc = 1u << bit;
      for (size_t i = 0; i < zeros; ++i) crc = (crc >> 8) ^ kByteTable[crc & 0xffu];
      of_bit[bit] = crc;
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
#define YOKE_CRC __attribute__((target("sse4.2")))
YOKE_CRC YOKE_INLINE uint64_t step8(uint64_t crc, uint64_t word) {
  return _mm_crc32_u64(crc, word);
}
YOKE_CRC YOKE_INLINE uint64_t step1(uint64_t crc, uint8_t byte) {
  return _mm_crc32_u8(static_cast<uint32_t>(crc), byte);
}
bool has_instruction() {
  return __builtin_cpu_supports("sse4.2");
}
#else
// In assembler: compilers disagree about how a function asks for the instruction.
#define YOKE_CRC
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
bool has_instruction() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & (1ul << 7)) != 0;  // HWCAP_CRC32
#else
  return true;  // every other aarch64 system we know requires ARMv8.1
#endif
}
#endif

template <bool kCopies>
YOKE_CRC YOKE_INLINE uint64_t word(const uint8_t* from, uint8_t* to, uint64_t crc) {
  uint64_t value;
  std::memcpy(&value, from, 8);
  if constexpr (kCopies) std::memcpy(to, &value, 8);
  return step8(crc, value);
}

// The instruction takes three cycles and one can start in each: three thirds of a block go side by side.
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
YOKE_CRC uint32_t by_instruction(const uint8_t* from, uint8_t* to, size_t bytes, uint32_t start) {
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

#else

bool has_instruction() {
  return false;
}
template <bool kCopies>
uint32_t by_instruction(const uint8_t* from, uint8_t*, size_t bytes, uint32_t crc) {
  return plain(from, bytes, crc);
}

#endif

const bool kHasInstruction = has_instruction();

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  auto* from = static_cast<const uint8_t*>(data);
  if (!kHasInstruction) return reference::crc32c(data, bytes, crc);
  return ~by_instruction<false>(from, nullptr, bytes, ~crc);
}

uint32_t copy_crc32c(void* to, const void* from, size_t bytes, uint32_t crc) {
  if (kHasInstruction)
    return ~by_instruction<true>(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to), bytes, ~crc);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return reference::crc32c(to, bytes, crc);
}

namespace reference {
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  return ~plain(static_cast<const uint8_t*>(data), bytes, ~crc);
}
}  // namespace reference

}  // namespace yoke::kernels
