#include "yoke/cluster/coordinator_blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::cluster {
namespace {

FailureReport about(int rank, const std::string& kind, const std::string& what) {
  FailureReport report;
  report.rank = rank;
  report.kind = kind;
  report.what = what;
  return report;
}

TEST(Blame, WaitsForABetterReportBeforeItSpeaks) {
  Blame blame;
  EXPECT_FALSE(blame.pending());
  EXPECT_FALSE(blame.decide(0));
  blame.add(Blame::Sign::kLost, about(2, "lost", "guess"), -1, 10.0);
  EXPECT_TRUE(blame.pending());
  EXPECT_FALSE(blame.decide(10.1));
  EXPECT_EQ(blame.decide(10.21)->what, "guess");
  EXPECT_FALSE(blame.pending());
  EXPECT_FALSE(blame.decide(11));
}

TEST(Blame, WhoConfessesGetsTheStatusThatItsLauncherSaw) {
  Blame blame;
  blame.add_report_of_rank(about(2, "exception", "a bug"), 2, 10.0);
  FailureReport ended = about(2, "exited", "code 9");
  ended.exit_code = 9;
  blame.add_report_of_launcher(ended, 10.05);
  std::optional<FailureReport> cause = blame.decide(10.21);
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->what, "a bug");
  EXPECT_EQ(cause->exit_code, 9);
}

TEST(Blame, TheLaunchersWordAboutASignalCountsAtOnce) {
  Blame blame;
  blame.add(Blame::Sign::kLost, about(2, "lost", "guess"), -1, 10.0);
  blame.add_report_of_launcher(about(2, "killed", "signal 9"), 10.01);
  EXPECT_EQ(blame.decide(10.01)->what, "signal 9");
}

TEST(Blame, ARanksOwnWordsReplaceTheGuessAboutItsConnection) {
  Blame blame;
  blame.add(Blame::Sign::kLost, about(2, "lost", "guess"), -1, 10.0);
  blame.add_report_of_rank(about(2, "exception", "out of memory"), 2, 10.1);
  EXPECT_EQ(blame.decide(10.3)->what, "out of memory");
}

TEST(Blame, VictimsAreSubtracted) {
  // Ranks 0 and 1 complain about 2 and end for it; the launcher sees their status before that of 2.
  Blame blame;
  blame.add_report_of_rank(about(2, "lost", "connection to rank 2 closed"), 0, 10.0);
  blame.add_report_of_launcher(about(0, "exited", "rank 0 ended with 3"), 10.05);
  blame.add(Blame::Sign::kLost, about(1, "lost", "rank 1 gone"), -1, 10.06);
  blame.add_report_of_rank(about(2, "lost", "connection to rank 2 closed"), 1, 10.07);
  blame.add(Blame::Sign::kLost, about(2, "lost", "rank 2 gone"), -1, 10.1);
  EXPECT_EQ(blame.decide(10.3)->what, "rank 2 gone");
}

TEST(Blame, AComplaintThatNamesNobodyStillMakesItsRankAVictim) {
  Blame blame;
  blame.add_report_of_rank(about(-1, "lost", "a link broke"), 0, 10.0);
  blame.add_report_of_launcher(about(0, "exited", "rank 0 ended with 3"), 10.0);
  blame.add(Blame::Sign::kLost, about(1, "lost", "rank 1 gone"), -1, 10.1);
  EXPECT_EQ(blame.decide(10.3)->what, "rank 1 gone");
}

TEST(Blame, OfEqualSignsTheFirstThatNamesSomebodyWins) {
  Blame blame;
  blame.add_report_of_rank(about(-1, "deadline", "late"), 0, 10.0);
  blame.add_report_of_rank(about(3, "deadline", "rank 3 is late"), 1, 10.1);
  blame.add_report_of_rank(about(4, "deadline", "rank 4 is late"), 2, 10.1);
  EXPECT_EQ(blame.decide(10.3)->what, "rank 3 is late");
}

TEST(Blame, ARankThatEndedWellIsNotBlamedForItsConnection) {
  Blame blame;
  blame.add(Blame::Sign::kLost, about(2, "lost", "guess"), -1, 10.0);
  blame.retract(2);
  EXPECT_FALSE(blame.pending());
  EXPECT_FALSE(blame.decide(11));
  blame.add(Blame::Sign::kLost, about(1, "lost", "rank 1"), -1, 12.0);
  EXPECT_FALSE(blame.decide(12.1));
  EXPECT_EQ(blame.decide(12.3)->rank, 1);
}

TEST(Blame, DecidesWithWhatItHasWhenItMust) {
  Blame blame;
  blame.add(Blame::Sign::kLost, about(2, "lost", "guess"), -1, 10.0);
  EXPECT_EQ(blame.decide(10.0, /*at_once=*/true)->what, "guess");
}

}  // namespace
}  // namespace yoke::cluster
