#include "yoke/base/text.h"

#include <gmock/gmock.h>

namespace yoke {
namespace {

using testing::ElementsAre;

TEST(Text, WrapsAtBlanksAndCutsLongWords) {
  EXPECT_THAT(wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrap("one", 7), ElementsAre("one"));
  EXPECT_THAT(wrap("", 7), ElementsAre(""));
  EXPECT_THAT(wrap("a /very/long/path b", 6), ElementsAre("a", "/very/", "long/p", "ath b"));
  EXPECT_THAT(wrap("123456 7", 6), ElementsAre("123456", "7"));
}

}  // namespace
}  // namespace yoke
