#include "yoke/data/formats/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using ::testing::HasSubstr;

std::string u16(std::vector<int> tokens) {
  std::string bytes;
  for (int t : tokens) bytes += {static_cast<char>(t & 255), static_cast<char>(t >> 8)};
  return bytes;
}

std::string header(uint32_t magic, uint32_t version, uint32_t count) {
  std::string bytes(1024, '\0');
  const uint32_t fields[] = {magic, version, count};
  for (size_t i = 0; i < 12; ++i) bytes[i] = static_cast<char>(fields[i / 4] >> (8 * (i % 4)));
  return bytes;
}

std::string tokens_error(const std::string& bytes) {
  try {
    parse_tokens(bytes, "f.bin");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tokens, ReadsAFlatFile) {
  const std::string bytes = u16({7, 50256, 65535});
  const TokenFile file = parse_tokens(bytes, "f.bin");
  EXPECT_EQ(file.count(), 3);
  EXPECT_EQ(file.at(0), 7);
  EXPECT_EQ(file.at(1), 50256);
  EXPECT_EQ(file.at(2), 65535);
}

TEST(Tokens, ReadsAnLlmcFile) {
  const std::string bytes = header(20240520, 1, 2) + u16({300, 4});
  const TokenFile file = parse_tokens(bytes, "f.bin");
  EXPECT_EQ(file.count(), 2);
  EXPECT_EQ(file.at(0), 300);
  EXPECT_EQ(file.start, 1024);
}

TEST(Tokens, RefusesOddAndEmptyFiles) {
  EXPECT_THAT(tokens_error(""), HasSubstr("f.bin, byte 0: the file is empty"));
  EXPECT_THAT(tokens_error("a"), HasSubstr("byte 0: half a token"));
  EXPECT_THAT(tokens_error(u16({1, 2}) + "a"), HasSubstr("byte 4: half a token at the end"));
}

TEST(Tokens, RefusesAnLlmcFileWhoseSizeIsNotWhatItSays) {
  EXPECT_THAT(tokens_error(header(20240520, 1, 3) + u16({1, 2})),
              HasSubstr("byte 8: the header promises 3 tokens of 2 bytes, 4 bytes follow"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 1) + u16({1, 2})), HasSubstr("promises 1 tokens"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 1) + "abc"), HasSubstr("3 bytes follow"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 0xffffffff)), HasSubstr("promises 4294967295 tokens"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 0)), HasSubstr("there are no tokens"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 0).substr(0, 100)),
              HasSubstr("byte 100: the file ends inside the llm.c header"));
}

TEST(Tokens, RefusesOtherVersions) {
  EXPECT_THAT(tokens_error(header(20240520, 2, 1) + u16({1})), HasSubstr("byte 4: expected version 1"));
  EXPECT_THAT(tokens_error(header(20240801, 7, 1) + "abcd"), HasSubstr("byte 0: tokens of 32 bits"));
}

TEST(Tokens, NamesTheOffsetOfATokenOutsideTheVocabulary) {
  const std::string bytes = header(20240520, 1, 3) + u16({1, 99, 100});
  const TokenFile file = parse_tokens(bytes, "f.bin");
  EXPECT_NO_THROW(check_vocabulary(file, 0, 3, 101, "f.bin"));
  EXPECT_NO_THROW(check_vocabulary(file, 0, 2, 100, "f.bin"));
  EXPECT_NO_THROW(check_vocabulary(file, 0, 3, 1 << 17, "f.bin"));
  try {
    check_vocabulary(file, 0, 3, 100, "f.bin");
    FAIL() << "token 100 is outside a vocabulary of 100";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("f.bin, byte 1028: token 100 is outside the model's vocabulary of 100"));
  }
}

}  // namespace
}  // namespace yoke::data
