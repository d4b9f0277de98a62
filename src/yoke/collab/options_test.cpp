#include "yoke/collab/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::collab {
namespace {

using ::testing::HasSubstr;

TEST(CollabOptions, ABandwidthIsOneRateOrTwo) {
  EXPECT_EQ(parse_bandwidth("20mbit").upload, 2.5e6);
  EXPECT_EQ(parse_bandwidth("20mbit").download, 2.5e6);
  EXPECT_EQ(parse_bandwidth("5mbit,50mbit").upload, 0.625e6);
  EXPECT_EQ(parse_bandwidth("5mbit,50mbit").download, 6.25e6);
  EXPECT_EQ(parse_bandwidth("auto").upload, 0);
  for (const char* good : {"auto", "20mbit", "1.5MB/s", "5mbit,1MB/s"}) EXPECT_EQ(check_bandwidth(good), "");
  for (const char* bad : {"", "0", "-1mbit", "fast", "5mbit,", ",", "1,2,3", "5mbit,0", "auto,auto"})
    EXPECT_THAT(check_bandwidth(bad), HasSubstr("upload,download")) << bad;
}

}  // namespace
}  // namespace yoke::collab
