#include "yoke/kernels/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace yoke::kernels {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr auto kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(const unsigned char* at, size_t bytes,
                                                          uint32_t crc) {
  uint64_t state = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto rest = static_cast<uint32_t>(state);
  for (; bytes > 0; --bytes, ++at) rest = _mm_crc32_u8(rest, *at);
  return ~rest;
}
bool has_instruction() {
  return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) uint32_t by_instruction(const unsigned char* at, size_t bytes, uint32_t crc) {
  uint32_t state = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = __crc32cd(state, word);
  }
  for (; bytes > 0; --bytes, ++at) state = __crc32cb(state, *at);
  return ~state;
}
bool has_instruction() {
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#else
uint32_t by_instruction(const unsigned char* at, size_t bytes, uint32_t crc) {
  return reference::crc32c(at, bytes, crc);
}
bool has_instruction() {
  return false;
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  static const bool fast = has_instruction();
  return fast ? by_instruction(static_cast<const unsigned char*>(data), bytes, crc)
              : reference::crc32c(data, bytes, crc);
}

uint32_t copy_crc32c(void* to, const void* from, size_t bytes, uint32_t crc) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return crc32c(to, bytes, crc);
}

namespace reference {
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  const auto* at = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; bytes > 0; --bytes, ++at) crc = (crc >> 8) ^ kTable[(crc ^ *at) & 0xff];
  return ~crc;
}
}  // namespace reference

}  // namespace yoke::kernels
