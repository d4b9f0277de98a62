#include "yoke/data/formats/text/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/data/formats/text/test_tokenizer.h"

namespace yoke::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<TokenId> encode(const json& file, std::string_view text) {
  const Tokenizer tokenizer(parse_tokenizer(file.dump(), "t.json"));
  return Encoder(tokenizer).encode(text);
}

std::string problem_of(const json& file, std::string_view text) {
  try {
    encode(file, text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Encoder, MergesInsideWordsOnly) {
  EXPECT_THAT(encode(small_tokenizer(), "the the"), ElementsAre(257, 259));
  EXPECT_THAT(encode(small_tokenizer(), "t he"), ElementsAre('t', ' ', 'h', 'e'));
}

TEST(Encoder, FindsAddedTokensBeforeWords) {
  EXPECT_THAT(encode(small_tokenizer(), "the<|endoftext|>the"), ElementsAre(257, 260, 257));
  EXPECT_THAT(encode(small_tokenizer(), "<|endoftext|><|endoftext|>"), ElementsAre(260, 260));
  EXPECT_THAT(encode(small_tokenizer(), "<|end"), ElementsAre('<', '|', 'e', 'n', 'd'));
}

TEST(Encoder, TheLongestAddedTokenWinsAndStripsSpaces) {
  json file = small_tokenizer();
  file["added_tokens"].push_back({{"id", 261}, {"content", "<|endoftext|>!"}, {"normalized", false}});
  file["added_tokens"].push_back(
      {{"id", 262}, {"content", "<m>"}, {"lstrip", true}, {"rstrip", true}, {"normalized", false}});
  EXPECT_THAT(encode(file, "<|endoftext|>!"), ElementsAre(261));
  EXPECT_THAT(encode(file, "a \u2003<m>\n b"), ElementsAre('a', 262, 'b'));
}

TEST(Encoder, ReadsTheOptionsOfThePreTokenizer) {
  json file = small_tokenizer();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(encode(file, "the the"), ElementsAre(259, 259));
  EXPECT_THAT(encode(file, " the"), ElementsAre(259));
  file = small_tokenizer();
  file["model"]["vocab"]["etĠ"] = 261;
  file["model"]["vocab"]["et"] = 262;
  file["model"]["merges"].push_back("e t");
  EXPECT_THAT(encode(file, "e t"), ElementsAre('e', 258));
  file["pre_tokenizer"]["use_regex"] = false;
  file["model"]["vocab"]["eĠ"] = 263;
  file["model"]["merges"] = {"e Ġ"};
  EXPECT_THAT(encode(file, "e t"), ElementsAre(263, 't'));
}

TEST(Encoder, TakesWholeWordsWithIgnoreMerges) {
  json file = small_tokenizer();
  file["model"]["vocab"]["cat"] = 261;  // no merges lead to it
  EXPECT_THAT(encode(file, "cat"), ElementsAre('c', 'a', 't'));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(encode(file, "cat cats"), ElementsAre(261, ' ', 'c', 'a', 't', 's'));
}

TEST(Encoder, GivesTheBytesBack) {
  const Tokenizer tokenizer = small_tokenizer_made();
  Encoder encoder(tokenizer);
  std::string text = "the théâtre\t日本 🙂 <|endoftext|>\r\n  the end  ";
  for (int i = 0; i < 14; ++i) text += text;  // above what is handed over at once
  EXPECT_EQ(tokenizer.decode(encoder.encode(text)), text);
}

TEST(Encoder, NamesFileAndByteOfInvalidUtf8) {
  EXPECT_THAT(problem_of(small_tokenizer(), "abc\xFFz"),
              HasSubstr("the text, byte 3: not valid UTF-8 (0xff)"));
  EXPECT_THAT(problem_of(small_tokenizer(), "abc\xE2\x82"), HasSubstr("byte 3"));
}

TEST(Encoder, NamesAByteThatTheVocabularyDoesNotHave) {
  json file = small_tokenizer();
  file["model"]["vocab"].erase("!");
  EXPECT_THAT(problem_of(file, "the!"), HasSubstr("byte 0x21 has no token in t.json"));
  EXPECT_THAT(encode(file, "the"), ElementsAre(257));
}

TEST(Encoder, KnowsNoTokenOutsideTheVocabulary) {
  const Tokenizer tokenizer = small_tokenizer_made();
  EXPECT_THROW(tokenizer.bytes_of(261), ConfigError);
  EXPECT_THROW(tokenizer.bytes_of(-1), ConfigError);
  EXPECT_EQ(tokenizer.added_token("<|endoftext|>"), 260);
  EXPECT_FALSE(tokenizer.added_token("<|im_start|>"));
}

}  // namespace
}  // namespace yoke::data
