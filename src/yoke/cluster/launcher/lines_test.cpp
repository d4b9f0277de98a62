#include "yoke/cluster/launcher/lines.h"

#include <gmock/gmock.h>

namespace yoke::cluster {
namespace {

using testing::ElementsAre;

TEST(Lines, GivesWholeLinesOnly) {
  Lines lines("[rank 1] ");
  EXPECT_EQ(lines.feed("on"), "");
  EXPECT_EQ(lines.feed("e\ntwo\nthr"), "[rank 1] one\n[rank 1] two\n");
  EXPECT_EQ(lines.feed("ee"), "");
  EXPECT_EQ(lines.finish(), "[rank 1] three\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(Lines, ThatAreNotShownAreRemembered) {
  Lines lines("> ");
  auto shows = [](const std::string& line) { return line != "again"; };
  EXPECT_EQ(lines.feed("once\nagain\nlast", shows), "> once\n");
  EXPECT_EQ(lines.finish(shows), "> last\n");
  EXPECT_THAT(lines.tail(), ElementsAre("once", "again", "last"));
}

TEST(Lines, KeepsEmptyLinesAndBytesOfAnyKind) {
  Lines lines("> ");
  EXPECT_EQ(lines.feed(std::string_view("\n\0\xff\r\n", 5)), std::string("> \n> \0\xff\r\n", 9));
}

TEST(Lines, CutsLinesThatNeverEnd) {
  Lines lines("> ");
  size_t shown = 0;
  for (int i = 0; i < 40; ++i) shown += lines.feed(std::string(100'000, 'x')).size();
  EXPECT_EQ(shown, 3 * (Lines::kMaxLine + 3));
  EXPECT_EQ(lines.finish().size(), 4'000'000 - 3 * Lines::kMaxLine + 3);
}

TEST(Lines, RemembersTheLastOnes) {
  Lines lines("> ");
  for (int i = 0; i < 20; ++i) lines.feed("line " + std::to_string(i) + "\n");
  lines.feed(std::string(1000, 'y') + "\n");
  EXPECT_EQ(lines.tail().size(), Lines::kTail);
  EXPECT_EQ(lines.tail()[Lines::kTail - 2], "line 19");
  EXPECT_EQ(lines.tail().back(), std::string(Lines::kTailLine, 'y'));
}

}  // namespace
}  // namespace yoke::cluster
