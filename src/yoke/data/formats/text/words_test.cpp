#include "yoke/data/formats/text/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace yoke::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size(); at += words.back().size())
    words.emplace_back(text.substr(at, word_length(text, at)));
  return words;
}

TEST(Words, TakeTheBlankBeforeThem) {
  EXPECT_THAT(words_of("The cat, 42 times!"), ElementsAre("The", " cat", ",", " 42", " times", "!"));
}

TEST(Words, CutContractionsInLowerCaseOnly) {
  EXPECT_THAT(words_of("I'll we're IT'S 'tis"),
              ElementsAre("I", "'ll", " we", "'re", " IT", "'", "S", " '", "tis"));
}

TEST(Words, LeaveTheLastSpaceToTheNextWord) {
  EXPECT_THAT(words_of("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(words_of("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(words_of("a \nb "), ElementsAre("a", " ", "\n", "b", " "));
  EXPECT_THAT(words_of("  \n "), ElementsAre("  \n "));
}

TEST(Words, KnowLettersNumbersAndSpacesOfAllScripts) {
  EXPECT_THAT(words_of("naïve Привет日本 ٣Ⅷ½"), ElementsAre("naïve", " Привет日本", " ٣Ⅷ½"));
  EXPECT_THAT(words_of("a\u2003\u2003b"), ElementsAre("a", "\u2003", "\u2003", "b"));
  EXPECT_THAT(words_of("🙂e\u0301"), ElementsAre("🙂", "e", "\u0301"));
}

}  // namespace
}  // namespace yoke::data
