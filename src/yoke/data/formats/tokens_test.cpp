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

std::string u32(std::vector<uint32_t> tokens) {
  std::string bytes;
  for (uint32_t t : tokens)
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(t >> (8 * i));
  return bytes;
}

TEST(Tokens, ReadsTokensOf32Bits) {
  // By llm.c's header, by a vocabulary that needs them, and by the zeros in every second place.
  const std::string with_header = header(20240801, 7, 2) + u32({128000, 4});
  const std::string large = u32({128000, 4, 100000}), small = u32({5, 0, 50256});
  const TokenFile llmc = parse_tokens(with_header, "f.bin");
  EXPECT_EQ(llmc.count(), 2);
  EXPECT_EQ(llmc.at(0), 128000);
  EXPECT_EQ(llmc.start, 1024);
  const TokenFile flat = parse_tokens(large, "f.bin", 128256);
  EXPECT_EQ(flat.count(), 3);
  EXPECT_EQ(flat.at(2), 100000);
  EXPECT_EQ(parse_tokens(small, "f.bin", 50257).count(), 3);
  EXPECT_EQ(parse_tokens(small, "f.bin", 50257).at(2), 50256);
  EXPECT_EQ(parse_tokens(u16({5, 0, 7, 1}), "f.bin", 50257).count(), 4);
  EXPECT_EQ(parse_tokens(std::string(16, '\0'), "f.bin", 50257).width, 2);
  try {
    check_vocabulary(flat, 0, 3, 100000, "f.bin");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("byte 0: token 128000"));
  }
  try {
    parse_tokens(u16({1, 2, 3}), "f.bin", 128256);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokens of 4 bytes (for a vocabulary of 128256)"));
  }
}

TEST(Tokens, RefusesOddAndEmptyFiles) {
  EXPECT_THAT(tokens_error(""), HasSubstr("f.bin, byte 0: the file is empty"));
  EXPECT_THAT(tokens_error("a"), HasSubstr("byte 0: incomplete token"));
  EXPECT_THAT(tokens_error(u16({1, 2}) + "a"), HasSubstr("byte 4: incomplete token at the end"));
}

TEST(Tokens, RefusesAnLlmcFileWhoseSizeIsNotWhatItSays) {
  EXPECT_THAT(tokens_error(header(20240520, 1, 3) + u16({1, 2})),
              HasSubstr("byte 8: the header declares 3 tokens of 2 bytes, but 4 bytes follow"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 1) + u16({1, 2})), HasSubstr("declares 1 tokens"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 1) + "abc"), HasSubstr("3 bytes follow"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 0xffffffff)), HasSubstr("declares 4294967295 tokens"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 0)), HasSubstr("declares no tokens"));
  EXPECT_THAT(tokens_error(header(20240520, 1, 0).substr(0, 100)),
              HasSubstr("byte 100: the file ends inside the llm.c header"));
}

TEST(Tokens, RefusesOtherVersions) {
  EXPECT_THAT(tokens_error(header(20240520, 2, 1) + u16({1})), HasSubstr("byte 4: expected version 1"));
  EXPECT_THAT(tokens_error(header(20240801, 1, 1) + "abcd"), HasSubstr("byte 4: expected version 7"));
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
