#include "yoke/kernels/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace yoke::kernels {
namespace {

std::vector<uint8_t> noise(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  uint32_t state = 12345;
  for (uint8_t& byte : data) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  return data;
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
