#include "yoke/data/formats/text/word_cache.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

namespace yoke::data {
namespace {

TEST(WordCache, FindsWhatWasPutAndForgetsOnlyWhenItIsFull) {
  WordCache cache;
  EXPECT_TRUE(cache.find("word").empty());
  for (int i = 0; i < 300000; ++i) {
    const std::string word = fmt::format("word{}", i);
    ASSERT_TRUE(cache.find(word).empty()) << word;
    const TokenId tokens[] = {i, i + 1};
    cache.put(word, tokens);
    ASSERT_EQ(cache.find(word).size(), 2u);
    ASSERT_EQ(cache.find(word)[0], i);
  }
  EXPECT_EQ(cache.find("word299999")[1], 300000);
}

TEST(WordCache, KeepsNoLongWords) {
  WordCache cache;
  const TokenId token = 1;
  cache.put(std::string(1000, 'a'), {&token, 1});
  EXPECT_TRUE(cache.find(std::string(1000, 'a')).empty());
}

}  // namespace
}  // namespace yoke::data
