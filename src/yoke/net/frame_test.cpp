#include "yoke/net/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/net/wire.h"

namespace yoke::net {
namespace {

using ::testing::HasSubstr;

FrameHeader sample() {
  FrameHeader header;
  header.type = FrameType::kMessage;
  header.flags = 0xa5;
  header.channel = 0xbeef;
  header.generation = 7;
  header.sequence = 0x0102030405060708;
  header.fingerprint = 0x1112131415161718;
  header.context = 0x2122232425262728;
  header.length = 12345;
  return header;
}

std::string why_not(std::array<std::byte, kFrameHeaderBytes> bytes) {
  std::string why;
  EXPECT_FALSE(decode(bytes, why));
  return why;
}

TEST(Frame, ReadsBackWhatWasWritten) {
  std::string why;
  auto decoded = decode(encode(sample(), 1, 2, 3), why);
  ASSERT_TRUE(decoded) << why;
  EXPECT_EQ(decoded->header.type, FrameType::kMessage);
  EXPECT_EQ(decoded->header.flags, 0xa5);
  EXPECT_EQ(decoded->header.channel, 0xbeef);
  EXPECT_EQ(decoded->header.generation, 7u);
  EXPECT_EQ(decoded->header.sequence, sample().sequence);
  EXPECT_EQ(decoded->header.fingerprint, sample().fingerprint);
  EXPECT_EQ(decoded->header.context, sample().context);
  EXPECT_EQ(decoded->header.length, 12345u);
  EXPECT_EQ(decoded->job, 1u);
  EXPECT_EQ(decoded->payload_crc, 2u);
  EXPECT_EQ(decoded->mac, 3u);
}

TEST(Frame, RefusesOtherBytesAndSaysWhy) {
  auto bytes = encode(sample(), 0, 0, 0);
  auto changed = bytes;
  changed[0] ^= std::byte{1};
  EXPECT_THAT(why_not(changed), HasSubstr("not a frame"));
  changed = bytes;
  changed[4] = std::byte{9};
  EXPECT_THAT(why_not(changed), HasSubstr("version 9"));
  for (int type : {0, 8, 255}) {
    changed = bytes;
    changed[5] = std::byte(type);
    EXPECT_THAT(why_not(changed), HasSubstr("unknown type"));
  }
  changed = bytes;
  changed[7] = std::byte{1};
  EXPECT_THAT(why_not(changed), HasSubstr("not zero"));
}

TEST(Frame, LimitsTheLengthByType) {
  FrameHeader header = sample();
  for (auto type : {FrameType::kRequest, FrameType::kReply, FrameType::kHeartbeat, FrameType::kAbort,
                    FrameType::kData, FrameType::kMessage, FrameType::kAnswer}) {
    header.type = type;
    header.length = max_payload(type);
    std::string why;
    EXPECT_TRUE(decode(encode(header, 0, 0, 0), why)) << why;
    header.length += 1;
    EXPECT_THAT(why_not(encode(header, 0, 0, 0)), HasSubstr("at most"));
    header.length = ~uint64_t{0};
    EXPECT_THAT(why_not(encode(header, 0, 0, 0)), HasSubstr("at most"));
  }
}

}  // namespace
}  // namespace yoke::net
