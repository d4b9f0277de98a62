#include "yoke/kernels/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "yoke/kernels/crc32c_kernels.h"
#include "yoke/kernels/crc32c_polynomial.h"

namespace yoke::kernels {
namespace {

constexpr std::array<uint32_t, 256> make_byte_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = crc::times_x(table[i]);
  }
  return table;
}
constexpr std::array<uint32_t, 256> kByteTable = make_byte_table();

bool always() {
  return true;
}

constexpr Crc32cKernel kKernels[] = {
    {"wide folding", crc::has_wide_folding, crc::by_wide_folding},
    {"folding", crc::has_folding, crc::by_folding},
    {"instruction", crc::has_instruction, crc::by_instruction},
    {"table", always, crc::by_table},
};

auto quickest() {
  return std::find_if(std::begin(kKernels), std::end(kKernels),
                      [](const Crc32cKernel& kernel) { return kernel.available(); })
      ->sum;
}

}  // namespace

namespace crc {
uint32_t by_table(const uint8_t* data, size_t bytes, uint32_t crc) {
  for (size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ kByteTable[(crc ^ data[i]) & 0xffu];
  return crc;
}
}  // namespace crc

std::span<const Crc32cKernel> crc32c_kernels() {
  return kKernels;
}

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  static const auto sum = quickest();
  return ~sum(static_cast<const uint8_t*>(data), bytes, ~crc);
}

uint32_t copy_crc32c(void* to, const void* from, size_t bytes, uint32_t crc) {
  static const bool has_instruction = crc::has_instruction();
  if (has_instruction)
    return ~crc::copy_by_instruction(static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), bytes,
                                     ~crc);
  if (bytes > 0) std::memcpy(to, from, bytes);
  return reference::crc32c(to, bytes, crc);
}

namespace reference {
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  return ~crc::by_table(static_cast<const uint8_t*>(data), bytes, ~crc);
}
}  // namespace reference

}  // namespace yoke::kernels
