#include "yoke/base/units.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

TEST(Units, BytesReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("64K"), 65536);
  EXPECT_EQ(parse_bytes("25MB"), 25'000'000);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 1610612736);
  EXPECT_EQ(parse_bytes("1048576"), 1048576);
  EXPECT_EQ(parse_bytes(""), std::nullopt);
  EXPECT_EQ(parse_bytes("-1"), std::nullopt);
  EXPECT_EQ(parse_bytes("12 parsecs"), std::nullopt);
  EXPECT_EQ(parse_bytes("1e30"), std::nullopt);
  EXPECT_EQ(parse_bytes("nan"), std::nullopt);
}

TEST(Units, RatesKnowBitsAndBytes) {
  EXPECT_EQ(parse_rate("10gbit"), 1.25e9);
  EXPECT_EQ(parse_rate("1.25GB/s"), 1.25e9);
  EXPECT_EQ(parse_rate("fast"), std::nullopt);
}

TEST(Units, DurationsAreSeconds) {
  EXPECT_DOUBLE_EQ(parse_duration("5ms").value(), 0.005);
  EXPECT_DOUBLE_EQ(parse_duration("2s").value(), 2);
  EXPECT_DOUBLE_EQ(parse_duration("1.5").value(), 1.5);
  EXPECT_EQ(parse_duration("soon"), std::nullopt);
}

TEST(Units, CountsAreGrouped) {
  EXPECT_EQ(format_count(61706), "61,706");
  EXPECT_EQ(format_count(138357544), "138,357,544");
  EXPECT_EQ(format_count(10), "10");
}

}  // namespace
}  // namespace yoke
