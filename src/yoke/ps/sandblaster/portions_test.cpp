#include "yoke/ps/sandblaster/portions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace yoke::ps::sandblaster {
namespace {

using Backups = Portions::Backups;

struct Outcome {
  double seconds = 0;
  int64_t copies = 0;
};

// A batch on a virtual clock. Worker w takes seconds[w] per portion; free workers are served by number, the
// last one first, so that a slow last one is served again near the end.
Outcome batch_of(int64_t count, const std::vector<double>& seconds, Backups backups) {
  constexpr double kNever = 1e300;
  Portions portions(count, backups);
  struct Worker {
    double ends = 0;
    int64_t portion = -1;
  };
  std::vector<Worker> workers(seconds.size());
  double now = 0;
  for (;;) {
    for (size_t w = workers.size(); w-- > 0;)
      if (workers[w].portion >= 0 && workers[w].ends <= now) {
        portions.finished(static_cast<int>(w), workers[w].portion, now);
        workers[w].portion = -1;
      }
    if (portions.done()) return {now, portions.copies()};
    double next = kNever;
    for (size_t w = workers.size(); w-- > 0;) {
      if (workers[w].portion < 0) {
        if (auto portion = portions.next(static_cast<int>(w), now)) {
          workers[w] = {now + seconds[w], *portion};
        } else if (auto due = portions.copy_due(static_cast<int>(w))) {
          next = std::min(next, *due);
        }
      }
      if (workers[w].portion >= 0) next = std::min(next, workers[w].ends);
    }
    now = next;
  }
}

TEST(Portions, ABackupEndsTheBatchThatASlowWorkerHoldsUp) {
  std::vector<double> seconds(10, 1.0);
  seconds.back() = 10;
  EXPECT_DOUBLE_EQ(batch_of(100, seconds, Backups::kNone).seconds, 20);
  const Outcome helped = batch_of(100, seconds, Backups::kWhenLate);
  EXPECT_GE(helped.seconds, 11);
  EXPECT_LE(helped.seconds, 12);
  EXPECT_GE(helped.copies, 1);
}

TEST(Portions, AWorkerAtATenthOfTheSpeedCostsAtMostAFifth) {
  for (size_t workers : {10, 16, 32}) {
    for (int64_t each : {8, 16, 64}) {
      const int64_t count = each * static_cast<int64_t>(workers);
      std::vector<double> seconds(workers, 1.0);
      const double equal = batch_of(count, seconds, Backups::kWhenLate).seconds;
      EXPECT_DOUBLE_EQ(equal, static_cast<double>(each));
      seconds.back() = 10;
      EXPECT_LE(batch_of(count, seconds, Backups::kWhenLate).seconds, 1.2 * equal + 1) << workers;
      if (each >= 16) {
        EXPECT_LE(batch_of(count, seconds, Backups::kWhenLate).seconds, 1.2 * equal) << workers;
      }
    }
  }
}

TEST(Portions, WorkersOfEqualSpeedComputeNothingTwice) {
  EXPECT_EQ(batch_of(80, std::vector<double>(10, 1.0), Backups::kWhenLate).copies, 0);
}

TEST(Portions, TheFirstResultOfAPortionCounts) {
  Portions portions(2);
  EXPECT_EQ(portions.next(0, 0), 0);
  EXPECT_EQ(portions.next(1, 0), 1);
  EXPECT_TRUE(portions.finished(1, 1, 1));
  EXPECT_EQ(portions.next(1, 0.5), std::nullopt) << "too early for a copy";
  EXPECT_EQ(portions.copy_due(1), 1.0);
  EXPECT_EQ(portions.copy_due(0), std::nullopt) << "its own";
  EXPECT_EQ(portions.next(1, 1), 0);
  EXPECT_TRUE(portions.finished(1, 0, 2));
  EXPECT_FALSE(portions.finished(0, 0, 3));
  EXPECT_TRUE(portions.done());
  EXPECT_EQ(portions.copies(), 1);
}

TEST(Portions, WhatALostWorkerHeldIsHandedOutAgainAtOnce) {
  Portions portions(3);
  EXPECT_EQ(portions.next(0, 0), 0);
  EXPECT_EQ(portions.next(1, 0), 1);
  portions.lost(0);
  EXPECT_EQ(portions.next(1, 0), 2);
  EXPECT_EQ(portions.next(1, 0), 0);
  EXPECT_EQ(portions.copies(), 0);
  // A result that arrives although its worker was given up counts as well.
  EXPECT_TRUE(portions.finished(0, 0, 1));
  EXPECT_TRUE(portions.finished(1, 1, 1));
  EXPECT_TRUE(portions.finished(1, 2, 1));
  EXPECT_TRUE(portions.done());
}

TEST(Portions, SlowWorkersShareNoPortionWhileAnotherHasFewerCopies) {
  Portions portions(3);
  for (int worker = 0; worker < 3; ++worker) portions.next(worker, 0);
  ASSERT_TRUE(portions.finished(2, 2, 1));
  std::set<int64_t> copied;
  for (int worker = 3; worker < 5; ++worker) copied.insert(portions.next(worker, 1).value());
  EXPECT_EQ(copied, (std::set<int64_t>{0, 1}));
}

}  // namespace
}  // namespace yoke::ps::sandblaster
