#include "yoke/data/formats/text/utf8.h"

#include <gtest/gtest.h>

namespace yoke::data {
namespace {

TEST(Utf8, EveryCodePointReadsBack) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code == 0xD800) code = 0xE000;  // surrogates
    std::string text;
    append_utf8(text, code);
    ASSERT_EQ(valid_utf8_length(text), text.size()) << code;
    const Character one = character_at(text, 0);
    ASSERT_EQ(one.code_point, code);
    ASSERT_EQ(one.bytes, text.size()) << code;
  }
}

TEST(Utf8, FindsWhereTextStopsBeingValid) {
  const std::string good = "0123456789 Grüße";  // longer than the eight bytes that are checked at once
  const char* wrong[] = {"\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
                         "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5",
                         "\xFF",         "\xE2\x82",         "\xF0\x9F\x99",     "\xC3"};
  for (const char* bytes : wrong) {
    EXPECT_EQ(valid_utf8_length(good + bytes), good.size()) << bytes;
    EXPECT_EQ(valid_utf8_length(bytes + good), 0u);
  }
}

TEST(Utf8, AnIncompleteCharacterWaitsAndAWrongByteIsReplaced) {
  size_t taken = 0;
  EXPECT_EQ(printable_utf8("a\xF0\x9F", taken), "a");
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(printable_utf8("\xF0\x9F\x99\x82", taken), "🙂");
  EXPECT_EQ(taken, 4u);
  EXPECT_EQ(printable_utf8("a\xFFz", taken), "a\xEF\xBF\xBDz");
  EXPECT_EQ(taken, 3u);
}

}  // namespace
}  // namespace yoke::data
