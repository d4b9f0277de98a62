#include "yoke/ps/sparse/range_clock.h"

#include <gtest/gtest.h>

#include <random>

namespace yoke::ps::sparse {
namespace {

using Timed = RangeClock::Timed;

TEST(RangeClock, CutsARangeIntoAtMostThree) {
  RangeClock clock(100);
  clock.set({20, 50}, 1);
  EXPECT_EQ(clock.all(), (std::vector<Timed>{{{0, 20}, 0}, {{20, 50}, 1}, {{50, 100}, 0}}));
  clock.set({40, 60}, 2);
  EXPECT_EQ(clock.all(), (std::vector<Timed>{{{0, 20}, 0}, {{20, 40}, 1}, {{40, 60}, 2}, {{60, 100}, 0}}));
  clock.set({0, 100}, 3);
  EXPECT_EQ(clock.all(), (std::vector<Timed>{{{0, 100}, 3}}));
}

TEST(RangeClock, TellsTheOldestAndTheNewestTimeOfARange) {
  RangeClock clock(100);
  clock.set({20, 50}, 4);
  clock.set({50, 60}, 2);
  EXPECT_EQ(clock.oldest({30, 55}), 2);
  EXPECT_EQ(clock.newest({30, 55}), 4);
  EXPECT_EQ(clock.oldest({30, 61}), 0);
  EXPECT_EQ(clock.oldest({99, 100}), 0);
}

TEST(RangeClock, TakesTheWholeKeySpace) {
  RangeClock clock;
  clock.set({kMostKeys - 1, kMostKeys}, 1);
  clock.set({0, 1}, 1);
  EXPECT_EQ(clock.size(), 3u);
  EXPECT_EQ(clock.newest({kMostKeys - 1, kMostKeys}), 1);
}

TEST(RangeClock, AgreesWithATimeForEachKey) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    RangeClock clock(40);
    std::vector<int64_t> times(40, 0);
    for (int64_t time = 1; time < 30; ++time) {
      const Key begin = random() % 40, end = begin + 1 + random() % (40 - begin);
      clock.set({begin, end}, time % 7);
      std::fill(times.begin() + static_cast<ptrdiff_t>(begin), times.begin() + static_cast<ptrdiff_t>(end),
                time % 7);
      size_t ranges = 1;
      for (size_t i = 1; i < times.size(); ++i) ranges += times[i] != times[i - 1];
      EXPECT_EQ(clock.size(), ranges);
      for (const Timed& one : clock.within({begin / 2, end}))
        for (Key key = one.range.begin; key < one.range.end; ++key) ASSERT_EQ(times[key], one.time);
    }
  }
}

}  // namespace
}  // namespace yoke::ps::sparse
