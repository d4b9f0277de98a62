// Arithmetic with polynomials over GF(2) modulo CRC32C's, at compile time. Bits are reversed as in the
// checksum itself: bit 31 - i of a word is the coefficient of x^i.
#pragma once

#include <cstdint>

namespace yoke::kernels::crc {

inline constexpr uint32_t kPolynomial = 0x82f63b78u;  // 0x1edc6f41 with its bits reversed
inline constexpr uint32_t kOne = 0x80000000u;

constexpr uint32_t times_x(uint32_t a) {
  return (a >> 1) ^ ((a & 1u) ? kPolynomial : 0u);
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1, b = times_x(b)) product ^= (a & bit) ? b : 0u;
  return product;
}

// x^n.
constexpr uint32_t power_of_x(uint64_t n) {
  uint32_t power = kOne;
  for (uint32_t square = times_x(kOne); n != 0; n >>= 1, square = multiply(square, square)) {
    if (n & 1u) power = multiply(power, square);
  }
  return power;
}

}  // namespace yoke::kernels::crc
