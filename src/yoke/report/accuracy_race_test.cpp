#include "yoke/report/accuracy_race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<RacedRun> two_runs() {
  return {{"sgd", {{1, 0.5}, {2, 0.8}, {3, 0.7}}, 0.3}, {"<fast>", {{0.5, 0.6}, {1, 0.9}}, 0.1}};
}

TEST(AccuracyRace, TheFirstToReachTheTargetWins) {
  std::vector<RacedRun> runs = two_runs();
  find_target(runs, 0.75);
  EXPECT_EQ(runs[0].seconds_to_target, 2.0);
  EXPECT_EQ(runs[1].seconds_to_target, 1.0);
  EXPECT_EQ(runs[0].best(), 0.8);
  LabPage page;
  page.title = "A & B";
  add_accuracy_race(page, 0.75, runs);
  EXPECT_THAT(page.html({}), AllOf(HasSubstr("&lt;fast&gt; reached an accuracy of 75.00% first"),
                                   HasSubstr("<svg"), HasSubstr("A &amp; B")));
}

TEST(AccuracyRace, ThePerfectMethodIsDrawnDashed) {
  std::vector<RacedRun> runs = two_runs();
  runs[0].by_epoch = {{1, 0.5}, {2, 0.8}, {3, 0.7}};
  LabPage page;
  add_accuracy_race(page, 0.75, runs, {"sgd, twice as fast", {{0.5, 0.5}, {1, 0.8}}});
  ASSERT_EQ(page.figures().size(), 2u);
  EXPECT_THAT(page.figures()[0].svg, AllOf(HasSubstr("line theory"), HasSubstr("sgd, twice as fast")));
  EXPECT_THAT(page.figures()[1].svg, HasSubstr("Accuracy over epochs"));
}

TEST(AccuracyRace, WhoNeverReachesItIsSaidSo) {
  std::vector<RacedRun> runs = two_runs();
  find_target(runs, 0.95);
  runs.push_back({"empty", {}, 0});
  LabPage page;
  add_accuracy_race(page, 0.95, runs);
  EXPECT_THAT(page.html({}), AllOf(HasSubstr("No method reached"), HasSubstr("never")));
}

}  // namespace
}  // namespace yoke::report
