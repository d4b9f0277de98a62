#include "yoke/engine/largest_batch.h"

#include <gtest/gtest.h>

namespace yoke::engine {
namespace {

TEST(LargestBatch, IsFoundExactlyWhenSmallAndWithinThreePercentWhenLarge) {
  for (int64_t limit : {0, 1, 2, 3, 7, 8, 31, 32, 33}) {
    EXPECT_EQ(largest_that_fits([&](int64_t n) { return n <= limit; }), limit);
  }
  for (int64_t limit : {100, 1000, 12345, 1 << 20}) {
    int64_t found = largest_that_fits([&](int64_t n) { return n <= limit; });
    EXPECT_LE(found, limit);
    EXPECT_GE(static_cast<double>(found), 0.96 * static_cast<double>(limit));
  }
}

TEST(LargestBatch, DoesNotDependOnTheStart) {
  for (int64_t start : {1, 500, 1000, 1001, 5000}) {
    int64_t found = largest_that_fits([&](int64_t n) { return n <= 1000; }, start);
    EXPECT_LE(found, 1000);
    EXPECT_GE(found, 960) << start;
  }
}

TEST(LargestBatch, TakesFewTries) {
  int tries = 0;
  largest_that_fits([&](int64_t n) {
    ++tries;
    return n <= 777;
  });
  EXPECT_LE(tries, 17);
}

}  // namespace
}  // namespace yoke::engine
