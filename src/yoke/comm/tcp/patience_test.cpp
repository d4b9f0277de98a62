#include "yoke/comm/tcp/patience.h"

#include <gtest/gtest.h>

namespace yoke::comm::tcp {
namespace {

TEST(Patience, ShrinksToNothingWhenLookingDoesNotPay) {
  Patience patience(false);
  double before = patience.window();
  EXPECT_GT(before, 0);
  patience.failed();
  EXPECT_LT(patience.window(), before);
  for (int i = 0; i < 5; ++i) patience.failed();
  EXPECT_EQ(patience.window(), 0);
}

TEST(Patience, TriesAgainNowAndThen) {
  Patience patience(false);
  int tries = 0;
  for (int i = 0; i < 320; ++i) {
    patience.failed();
    tries += patience.window() > 0 ? 1 : 0;
  }
  EXPECT_GE(tries, 5);
  EXPECT_LE(tries, 80);
}

TEST(Patience, OpensAtOnceWhenAWaitWasShort) {
  Patience patience(false);
  double longest = patience.window();
  for (int i = 0; i < 6; ++i) patience.failed();
  patience.worked();
  EXPECT_EQ(patience.window(), longest);
}

TEST(Patience, NeverLooksOnWhereRanksShareCores) {
  Patience patience(true);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(patience.window(), 0);
    i % 2 ? patience.worked() : patience.failed();
  }
}

}  // namespace
}  // namespace yoke::comm::tcp
