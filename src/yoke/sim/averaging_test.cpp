#include "yoke/sim/averaging.h"

#include <gtest/gtest.h>

namespace yoke::sim {
namespace {

// A model of 8 MB on 4 ranks: an all-reduce sends 12 MB, which takes 1.2 s.
AveragingRun run_of(plan::RoundPlan rounds) {
  AveragingRun run;
  run.rounds = rounds;
  run.ranks = 4;
  run.model_bytes = 8e6;
  run.compute_seconds = 0.3;
  run.average_at_end = false;
  return run;
}
constexpr LinkSpeed kTenMegabytes{1e7, 0};

double seconds_of(const AveragingRun& run) {
  return simulate_averaging(run, kTenMegabytes, 12).seconds.back();
}

TEST(SimulateAveraging, GradientsTravelBehindBackward) {
  AveragingRun ddp = run_of({.never = true});
  ddp.gradients = true;
  EXPECT_NEAR(seconds_of(ddp), 12 * (0.1 + 1.2), 1e-9);
  EXPECT_NEAR(simulate_averaging(ddp, kTenMegabytes, 12).bytes.back(), 12 * 12e6, 1e-3);
  ddp.compute_seconds = 3;
  EXPECT_NEAR(seconds_of(ddp), 12 * 3, 1e-9) << "hidden";
}

TEST(SimulateAveraging, RoundsAreRareAndWaitedFor) {
  AveragingRun local = run_of({.every = 4});
  EXPECT_NEAR(seconds_of(local), 12 * 0.3 + 3 * 1.2, 1e-9);
  EXPECT_NEAR(simulate_averaging(local, kTenMegabytes, 12).bytes.back(), 3 * 12e6, 1e-3);
}

TEST(SimulateAveraging, OverlapHidesARound) {
  EXPECT_NEAR(seconds_of(run_of({.every = 4, .overlap = 4})), 12 * 0.3, 1e-9);
  // Three steps of 0.3 s are not enough for 1.2 s.
  EXPECT_NEAR(seconds_of(run_of({.every = 4, .overlap = 3})), 12 * 0.3 + 2 * 0.3, 1e-9);
}

TEST(SimulateAveraging, FragmentsSendAsMuchInSmallerPieces) {
  AveragingRun parts = run_of({.every = 4, .fragments = 4, .overlap = 1});
  EXPECT_NEAR(simulate_averaging(parts, kTenMegabytes, 12).bytes.back(), 3 * 12e6, 1e-3);
  EXPECT_NEAR(seconds_of(parts), 12 * 0.3, 1e-9) << "0.3 s a fragment";
}

TEST(SimulateAveraging, GossipSendsToNeighbours) {
  AveragingRun ring = run_of({});
  ring.neighbours = 2;
  EXPECT_NEAR(seconds_of(ring), 12 * (0.3 + 1.6), 1e-9);
  EXPECT_NEAR(simulate_averaging(ring, kTenMegabytes, 12).bytes.back(), 12 * 16e6, 1e-3);
}

TEST(SimulateAveraging, NobodyWaitsForPairs) {
  AveragingRun pairs = run_of({.never = true});
  pairs.pairs_every = 12;
  EXPECT_NEAR(seconds_of(pairs), 12 * 0.3, 1e-9);
  EXPECT_NEAR(simulate_averaging(pairs, kTenMegabytes, 12).bytes.back(), 2 * 8e6, 1e-3);
  EXPECT_NEAR(pairs_load(pairs, kTenMegabytes), 2 * 1.6 / 3.6, 1e-9);
  pairs.average_at_end = true;  // after the last pair
  EXPECT_NEAR(seconds_of(pairs), 12 * 0.3 + 3.2 + 1.2, 1e-9);
}

TEST(SimulateAveraging, TheEndIsPaidFor) {
  AveragingRun end = run_of({.never = true});
  end.average_at_end = true;
  EXPECT_NEAR(seconds_of(end), 12 * 0.3 + 1.2, 1e-9);
}

TEST(SimulateAveraging, PostLocalPaysForGradientsFirst) {
  AveragingRun post = run_of({.every = 4, .after = 4});
  post.gradients = true;
  EXPECT_NEAR(seconds_of(post), 4 * 1.3 + 8 * 0.3 + 2 * 1.2, 1e-9);
}

}  // namespace
}  // namespace yoke::sim
