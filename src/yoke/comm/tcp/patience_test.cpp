#include "yoke/comm/tcp/patience.h"

#include <gtest/gtest.h>

namespace yoke::comm::tcp {
namespace {

TEST(Patience, ShrinksWhenLookingOnDoesNotPayAndOpensWhenItDoes) {
  Patience patience(/*crowded=*/false);
  double longest = patience.window(true);
  EXPECT_GT(longest, Patience::kShort);
  patience.learn(false, 0);
  EXPECT_LT(patience.window(true), longest);
  for (int i = 0; i < 5; ++i) patience.learn(false, 0);
  EXPECT_EQ(patience.window(true), Patience::kShort);
  patience.learn(true, 0);
  EXPECT_EQ(patience.window(true), longest);
}

TEST(Patience, IsShortForAWhileWhenOthersWantTheCore) {
  Patience patience(/*crowded=*/false);
  double longest = patience.window(true);
  patience.learn(true, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(patience.window(true), Patience::kShort);
    patience.learn(true, 1);
  }
  patience.learn(true, 1);
  EXPECT_EQ(patience.window(true), longest);
}

TEST(Patience, WaitsForTheWireAreShort) {
  EXPECT_EQ(Patience(/*crowded=*/false).window(false), Patience::kShort);
}

TEST(Patience, NeverLooksOnWhereRanksShareCores) {
  Patience patience(/*crowded=*/true);
  patience.learn(true, 0);
  EXPECT_EQ(patience.window(true), 0);
  EXPECT_EQ(patience.window(false), 0);
}

}  // namespace
}  // namespace yoke::comm::tcp
