#include "yoke/engine/speed_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/engine/verify.h"

namespace yoke::engine {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Every text is shares that can be added and divided, or an error of ours.
TEST(SpeedSplit, AnyTextIsASplitOrAnErrorInOurWords) {
  const std::string letters = "0123456789.:-+eE xnafiINF";
  Random random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto length = random.below(12); text.size() < length;) text += letters[random.below(letters.size())];
    try {
      double sum = 0;
      for (double share : parse_split(text, 2)) sum += share;
      EXPECT_TRUE(std::isfinite(sum)) << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("parallel.split")) << text;
    }
  }
  EXPECT_THROW(parse_split("1e308:1e308", 2), ConfigError);
}

TEST(Split, SharesAreReadAndRefused) {
  EXPECT_TRUE(parse_split("equal", 2).empty());
  EXPECT_THAT(parse_split("8:4", 2), ElementsAre(8, 4));
  for (const char* bad : {"", "8", "8:4:2", "8:", "0:1", "-1:2", "fast", "1:inf", "nan:1"})
    EXPECT_THAT([&] { parse_split(bad, 2); }, ThrowsMessage<Error>(HasSubstr("parallel.split"))) << bad;
}

TEST(Split, FollowsTheSpeedOfRanks) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    std::vector<std::vector<double>> applied;
    SpeedSplit split(comm, torch::kCPU, comm.rank(), comm.size(),
                     [&](const std::vector<double>& shares) { applied.push_back(shares); });
    double slow = comm.rank() == 0 ? 1.0 : 2.0;
    for (int step = 0; step < 120; ++step) split.add(10, 10 * slow * (step < 3 ? 100 : 1));
    ASSERT_EQ(applied.size(), 1u) << "the same speeds again change nothing";
    EXPECT_THAT(applied[0], ElementsAre(DoubleNear(2.0 / 3, 1e-9), DoubleNear(1.0 / 3, 1e-9)));
    for (int step = 0; step < 60; ++step) split.add(10, 10);
    ASSERT_EQ(applied.size(), 2u);
    EXPECT_THAT(applied[1], ElementsAre(DoubleNear(0.5, 1e-9), DoubleNear(0.5, 1e-9)));
  });
}

// Ranks 0 and 2 are replica 0, whose rank 2 is the slowest of all.
TEST(Split, AReplicaOfSeveralRanksIsAsFastAsItsSlowest) {
  comm::run_ranks(4, [](comm::Communicator& comm) {
    std::vector<double> applied;
    SpeedSplit split(comm, torch::kCPU, comm.rank() % 2, 2,
                     [&](const std::vector<double>& shares) { applied = shares; });
    const double slow[] = {1, 1, 3, 1};
    for (int step = 0; step < 20; ++step) split.add(10, 10 * slow[comm.rank()]);
    EXPECT_THAT(applied, ElementsAre(DoubleNear(0.25, 1e-9), DoubleNear(0.75, 1e-9)));
  });
}

VerifyOptions mlp_beside_itself() {
  VerifyOptions options;
  options.alone.model.name = "mlp";
  options.alone.model.sizes = {784, 20, 10};
  options.alone.optimizer.optimizer = "sgd";
  options.alone.optimizer.lr = 0.1;
  options.alone.compute.threads = 1;
  options.alone.batch_size = 12;
  options.parallel = options.alone;
  options.data.samples = 48;
  options.steps = 4;
  return options;
}

TEST(Split, UnequalPartsEqualTheBigBatch) {
  VerifyOptions options = mlp_beside_itself();
  for (auto [ranks, zero, shares] :
       {std::tuple(2, 0, "2:1"), {3, 0, "1:5:2"}, {2, 0, "1:100"}, {2, 2, "3:1"}}) {
    options.ranks = ranks;
    options.parallel.parallel.zero = zero;
    options.parallel.parallel.split = shares;
    EXPECT_LT(verify(options).worst.largest(), 1e-10) << shares;
  }
}

TEST(Threads, EqualTheBigBatch) {
  VerifyOptions options = mlp_beside_itself();
  for (auto [threads, accumulate] : {std::pair(2, 1), {3, 2}}) {
    options.parallel.parallel.sync = "threads";
    options.parallel.parallel.data = threads;
    options.parallel.accumulate = accumulate;
    EXPECT_LT(verify(options).worst.largest(), 1e-10) << threads;
  }
}

}  // namespace
}  // namespace yoke::engine
