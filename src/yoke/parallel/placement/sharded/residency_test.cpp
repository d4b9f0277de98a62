#include "yoke/parallel/placement/sharded/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::parallel::residency_testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Units = Residency::Units;

void pass(Residency& residency, const std::vector<Units>& uses) {
  for (const Units& units : uses) residency.use(units);
  residency.end_pass();
  for (size_t unit = 0; unit < 8; ++unit) residency.gone(unit);
}

const std::vector<Units> kPass = {{0}, {1}, {2}, {1}, {0}};

TEST(Residency, TheFirstPassKeepsWhatWasUsedLast) {
  Residency residency(1, false);
  EXPECT_THAT(residency.use({0}).gather, ElementsAre(0));
  EXPECT_THAT(residency.use({1}).release, IsEmpty());
  auto change = residency.use({2});
  EXPECT_THAT(change.release, ElementsAre(0));
  EXPECT_THAT(change.gather, ElementsAre(2));
}

TEST(Residency, GathersAheadWhatTheLastPassUsedNext) {
  Residency residency(1, false);
  pass(residency, kPass);
  EXPECT_THAT(residency.use({0}).gather, ElementsAre(0, 1));
  auto change = residency.use({1});
  EXPECT_THAT(change.release, ElementsAre(0));
  EXPECT_THAT(change.gather, ElementsAre(2));
  change = residency.use({2});
  EXPECT_THAT(change.release, IsEmpty()) << "the next one is needed again";
  EXPECT_THAT(change.gather, IsEmpty());
}

TEST(Residency, ExpectsNothingBehindTheEndOfAPass) {
  Residency residency(3, false);
  pass(residency, kPass);
  for (const Units& units : kPass) residency.use(units);
  EXPECT_TRUE(residency.present(0));
  EXPECT_FALSE(residency.present(1));
  EXPECT_FALSE(residency.present(2));
}

TEST(Residency, FindsItsWayBackWhenAPassTakesAnotherPath) {
  Residency residency(1, false);
  pass(residency, kPass);
  residency.use({0});
  EXPECT_THAT(residency.use({2}).gather, ElementsAre(2)) << "1 is there already";
  residency.use({5});
  EXPECT_THAT(residency.use({2}).gather, ElementsAre(2, 1));
}

TEST(Residency, KeepsEverythingWhereItIsTold) {
  Residency residency(0, true);
  for (const Units& units : kPass) EXPECT_THAT(residency.use(units).release, IsEmpty());
  residency.gone(2);
  EXPECT_FALSE(residency.present(2));
  EXPECT_TRUE(residency.present(0));
}

}  // namespace
}  // namespace yoke::parallel::residency_testing
