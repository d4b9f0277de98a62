#include "yoke/kernels/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "yoke/kernels/crc32c_kernels.h"
#include "yoke/kernels/crc32c_polynomial.h"

namespace yoke::kernels {
namespace {

std::vector<uint8_t> noise(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  uint32_t state = 12345;
  for (uint8_t& byte : data) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  return data;
}

// Division by the polynomial, one bit at a time, as it is defined; shares nothing with the kernels.
uint32_t next_by_bits(uint8_t byte, uint32_t crc) {
  crc ^= byte;
  for (int bit = 0; bit < 8; ++bit) crc = crc & 1u ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  return crc;
}

// The registers after each of the bytes, from `start`.
std::vector<uint32_t> all_by_bits(const uint8_t* data, size_t bytes, uint32_t start) {
  std::vector<uint32_t> registers{start};
  for (size_t i = 0; i < bytes; ++i) registers.push_back(next_by_bits(data[i], registers.back()));
  return registers;
}

template <class Visit>
void for_available(Visit visit) {
  for (const Crc32cKernel& kernel : crc32c_kernels()) {
    if (kernel.available())
      visit(kernel);
    else
      std::printf("this processor cannot run '%s'\n", kernel.name);
  }
}

TEST(Crc32cPolynomial, MultipliesAndRaisesToPowers) {
  uint32_t power = crc::kOne;
  for (uint64_t n = 0; n < 300; ++n, power = crc::times_x(power)) {
    ASSERT_EQ(crc::power_of_x(n), power) << n;
    ASSERT_EQ(crc::multiply(power, crc::power_of_x(77)), crc::power_of_x(n + 77)) << n;
  }
  EXPECT_EQ(crc::power_of_x(32), crc::kPolynomial);  // x^32 is what is left of it
}

TEST(Crc32cKernels, EqualDivisionByBitsForEveryLengthAndAlignment) {
  constexpr size_t kLengths = 4096, kAlignments = 64;
  std::vector<uint8_t> memory = noise(kLengths + 2 * kAlignments);
  uint8_t* data = memory.data() + (kAlignments - reinterpret_cast<uintptr_t>(memory.data()) % kAlignments);
  for (size_t offset = 0; offset < kAlignments; ++offset) {
    const uint32_t start = offset % 2 ? 0x9e3779b9u * static_cast<uint32_t>(offset) : ~0u;
    std::vector<uint32_t> wanted = all_by_bits(data + offset, kLengths, start);
    for_available([&](const Crc32cKernel& kernel) {
      if (kernel.sum == crc::by_table && offset > 3) return;  // slow, and sees single bytes only
      for (size_t length = 0; length <= kLengths; ++length)
        ASSERT_EQ(kernel.sum(data + offset, length, start), wanted[length])
            << kernel.name << ": " << length << " bytes at " << offset;
    });
  }
}

TEST(Crc32cKernels, EqualDivisionByBitsHoweverTheDataIsSplit) {
  std::vector<uint8_t> data = noise(200'000);
  std::vector<uint32_t> wanted = all_by_bits(data.data(), data.size(), ~0u);
  for_available([&](const Crc32cKernel& kernel) {
    std::mt19937 random(7);
    for (int trial = 0; trial < 50; ++trial) {
      size_t at = 0;
      uint32_t crc = ~0u;
      while (at < data.size()) {
        // Of all orders of magnitude: single bytes as well as several blocks.
        size_t most = size_t{1} << random() % 18;
        size_t bytes = std::min<size_t>(random() % most + 1, data.size() - at);
        crc = kernel.sum(data.data() + at, bytes, crc);
        at += bytes;
        ASSERT_EQ(crc, wanted[at]) << kernel.name << " at " << at;
      }
    }
  });
}

TEST(Crc32cKernels, SeeEveryBitOfABlock) {
  std::vector<uint8_t> data = noise(12'288 + 1'000);
  for_available([&](const Crc32cKernel& kernel) {
    const uint32_t right = kernel.sum(data.data(), data.size(), ~0u);
    for (size_t at = 0; at < data.size(); ++at) {
      data[at] ^= static_cast<uint8_t>(1u << at % 8);
      ASSERT_NE(kernel.sum(data.data(), data.size(), ~0u), right) << kernel.name << " at " << at;
      data[at] ^= static_cast<uint8_t>(1u << at % 8);
    }
  });
}

TEST(Crc32cKernels, TheLastIsThereEverywhere) {
  EXPECT_TRUE(crc32c_kernels().back().available());
}

TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(reference::crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(crc32c("", 0), 0u);
  std::vector<uint8_t> zeros(32, 0), ones(32, 0xff);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8A9136AAu);
  EXPECT_EQ(crc32c(ones.data(), 32), 0x62A8AB43u);
}

TEST(Crc32c, EqualsItsReferenceForEveryLengthAndAlignment) {
  std::vector<uint8_t> data = noise(70000);
  std::vector<size_t> lengths = {1535, 1536, 1537, 12287, 12288, 12289, 13057, 24576, 65521, 69990};
  for (size_t length = 0; length < 800; ++length) lengths.push_back(length);
  for (size_t length : lengths) {
    for (size_t offset : {0u, 1u, 3u, 8u}) {
      ASSERT_EQ(crc32c(data.data() + offset, length), reference::crc32c(data.data() + offset, length))
          << length << " bytes at " << offset;
    }
  }
}

TEST(Crc32c, GoesOnWhereItStopped) {
  std::vector<uint8_t> data = noise(30000);
  uint32_t whole = crc32c(data.data(), data.size());
  for (size_t cut : {0u, 1u, 777u, 12289u, 30000u}) {
    uint32_t first = crc32c(data.data(), cut);
    EXPECT_EQ(crc32c(data.data() + cut, data.size() - cut, first), whole);
  }
}

TEST(CopyCrc32c, CopiesAllBytesAndNoMore) {
  std::vector<uint8_t> data = noise(40000);
  for (size_t length : {0u, 1u, 9u, 767u, 768u, 12288u, 12300u, 39990u}) {
    std::vector<uint8_t> copy(length + 2, 0xee);
    EXPECT_EQ(copy_crc32c(copy.data() + 1, data.data() + 3, length),
              reference::crc32c(data.data() + 3, length));
    EXPECT_EQ(std::memcmp(copy.data() + 1, data.data() + 3, length), 0);
    EXPECT_EQ(copy.front(), 0xee);
    EXPECT_EQ(copy.back(), 0xee);
  }
}

}  // namespace
}  // namespace yoke::kernels
