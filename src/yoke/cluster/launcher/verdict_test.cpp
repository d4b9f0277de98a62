#include "yoke/cluster/launcher/verdict.h"

#include <gmock/gmock.h>

namespace yoke::cluster {
namespace {

using testing::HasSubstr;

// As wait() gives them.
constexpr int exited(int code) {
  return code << 8;
}
constexpr int killed(int signal) {
  return signal;
}

ChildEnd end(int rank, int status, bool asked = false) {
  return {rank, 100 + rank, status, asked};
}

FailureReport report(int rank, const char* kind) {
  FailureReport known;
  known.rank = rank;
  known.kind = kind;
  known.what = std::string("the coordinator says ") + kind;
  known.step = 12;
  return known;
}

TEST(Verdict, AllWellIsNoFailure) {
  Verdict verdict = judge({end(0, 0), end(1, 0)}, nullptr, "here");
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_FALSE(verdict.failure);
}

TEST(Verdict, ARankIsNamedWithItsRole) {
  ChildEnd server = end(4, killed(9));
  server.role = "parameter server 1";
  Verdict verdict = judge({end(0, exited(3)), server}, nullptr, "here");
  EXPECT_EQ(verdict.failure->what,
            "parameter server 1 (rank 4) on here (pid 104) was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(verdict.failure->role, "parameter server 1");
}

TEST(Verdict, ARankThatLeftEarlyIsTheCauseThoughItEndedWell) {
  FailureReport left = report(0, "left");
  Verdict verdict = judge({end(0, 0), end(1, exited(3))}, &left, "here");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.failure->rank, 0);
}

TEST(Verdict, WhoWasKilledComesBeforeVictimsSeenEarlier) {
  Verdict verdict = judge({end(0, exited(3)), end(1, exited(3)), end(2, killed(9))}, nullptr, "here");
  EXPECT_EQ(verdict.exit_code, 137);
  EXPECT_EQ(verdict.failure->rank, 2);
  EXPECT_EQ(verdict.failure->what, "rank 2 on here (pid 102) was killed by signal 9 (SIGKILL)");
}

TEST(Verdict, WhomWeEndedIsNotToBlame) {
  Verdict verdict =
      judge({end(0, killed(15), true), end(1, exited(7)), end(2, killed(9), true)}, nullptr, "here");
  EXPECT_EQ(verdict.exit_code, 7);
  EXPECT_EQ(verdict.failure->rank, 1);
}

TEST(Verdict, VictimsAreBlamedWhenNobodyElseCanBe) {
  Verdict verdict = judge({end(1, exited(3)), end(0, exited(3))}, nullptr, "here");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.failure->rank, 1);
  EXPECT_THAT(verdict.failure->next, HasSubstr("another machine"));
}

TEST(Verdict, AStalledRankIsNamedAlthoughWeKilledIt) {
  FailureReport known = report(2, "stalled");
  Verdict verdict = judge({end(0, exited(3)), end(1, exited(3)), end(2, killed(9), true)}, &known, "here");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.failure->rank, 2);
  EXPECT_EQ(verdict.failure->what, "the coordinator says stalled");
}

TEST(Verdict, ARankOfAnotherMachineIsTheCause) {
  FailureReport known = report(9, "lost");
  Verdict verdict = judge({end(0, exited(3)), end(1, exited(3))}, &known, "here");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.failure->rank, 9);
}

TEST(Verdict, ARankOfAnotherMachineIsTheCauseWithItsStatus) {
  FailureReport known = report_of(end(7, killed(9)), "there");
  EXPECT_EQ(known.exit_code, 137);
  Verdict verdict = judge({end(0, exited(3)), end(1, exited(3))}, &known, "here");
  EXPECT_EQ(verdict.exit_code, 137);
  EXPECT_THAT(verdict.failure->what, HasSubstr("rank 7 on there (pid 107) was killed by signal 9"));
}

TEST(Verdict, WhatARankSaidItselfIsKeptBesideItsExitCode) {
  FailureReport known = report(1, "exception");
  Verdict verdict = judge({end(1, exited(1)), end(0, exited(3))}, &known, "here");
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_EQ(verdict.failure->what, "the coordinator says exception");
  EXPECT_EQ(verdict.failure->step, 12);
}

TEST(Verdict, AnExactStatusReplacesTheGuess) {
  FailureReport known = report(1, "lost");
  Verdict verdict = judge({end(0, exited(3)), end(1, killed(11))}, &known, "here");
  EXPECT_EQ(verdict.exit_code, 139);
  EXPECT_THAT(verdict.failure->what, HasSubstr("SIGSEGV"));
  EXPECT_EQ(verdict.failure->step, 12);
}

TEST(Verdict, TheCoordinatorDecidesAmongSeveral) {
  FailureReport known = report(3, "killed");
  Verdict verdict = judge({end(1, exited(1)), end(3, killed(9))}, &known, "here");
  EXPECT_EQ(verdict.failure->rank, 3);
  EXPECT_EQ(verdict.exit_code, 137);
}

TEST(Verdict, AnInterruptedJobHasTheCodeOfItsSignal) {
  EXPECT_EQ(judge({end(0, killed(2), true), end(1, 0, true)}, nullptr, "here").exit_code, 130);
}

TEST(Verdict, DisagreementIsNamedByTheCoordinatorAlthoughAllEndAsVictims) {
  FailureReport known = report(1, "mismatch");
  Verdict verdict = judge({end(0, exited(3)), end(1, exited(3))}, &known, "here");
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.failure->rank, 1);
  EXPECT_EQ(verdict.failure->kind, "mismatch");
}

}  // namespace
}  // namespace yoke::cluster
