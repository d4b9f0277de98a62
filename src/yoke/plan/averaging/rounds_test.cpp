#include "yoke/plan/averaging/rounds.h"

#include <gtest/gtest.h>

#include <vector>

namespace yoke::plan {
namespace {

TEST(RoundPlan, EveryFragmentHasItsRoundOnceInEveryPeriod) {
  for (int64_t every : {1, 2, 3, 7, 10, 64})
    for (int64_t fragments = 1; fragments <= every; ++fragments) {
      RoundPlan plan{.every = every, .fragments = fragments};
      std::vector<int> count(static_cast<size_t>(fragments));
      for (int64_t step = 1; step <= 3 * every; ++step)
        if (auto one = plan.begins(step)) ++count[static_cast<size_t>(*one)];
      for (int one : count) EXPECT_EQ(one, 3) << every << " " << fragments;
    }
}

TEST(RoundPlan, TheFirstFragmentComesAtMultiples) {
  RoundPlan plan{.every = 8, .fragments = 4};
  EXPECT_EQ(plan.begins(8), 0);
  EXPECT_EQ(plan.begins(2), 1);
  EXPECT_EQ(plan.begins(6), 3);
  EXPECT_EQ(plan.begins(7), std::nullopt);
}

TEST(RoundPlan, ARoundEndsAfterItsOverlap) {
  RoundPlan plan{.every = 4, .overlap = 3};
  EXPECT_EQ(plan.begins(4), 0);
  EXPECT_EQ(plan.ends(7), 0);
  EXPECT_EQ(plan.ends(3), std::nullopt) << "nothing began before the first step";
}

TEST(RoundPlan, NoRoundBeforeItsTime) {
  RoundPlan plan{.every = 2, .after = 5};
  EXPECT_EQ(plan.begins(4), std::nullopt);
  EXPECT_EQ(plan.begins(6), 0);
  RoundPlan never{.never = true};
  EXPECT_EQ(never.begins(1), std::nullopt);
}

}  // namespace
}  // namespace yoke::plan
