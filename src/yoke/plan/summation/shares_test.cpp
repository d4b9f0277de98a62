#include "yoke/plan/summation/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

TEST(SummationShares, EqualTheReferencesVectors) {
  const struct {
    int workers, spares;
    double worker, spare, load, gain;
  } vectors[] = {{2, 1, 0.25, 0.5, 1.0, 1.0},
                 {4, 0, 0.25, 0, 1.5, 1.0},
                 {4, 2, 0.1, 0.3, 1.2, 1.25},
                 {8, 1, 0.1, 0.2, 1.6, 1.09375},
                 {8, 8, 0, 0.125, 1.0, 1.75}};
  for (const auto& vector : vectors) {
    SummationShares shares = summation_shares(vector.workers, vector.spares);
    EXPECT_DOUBLE_EQ(shares.worker, vector.worker) << vector.workers << ' ' << vector.spares;
    EXPECT_DOUBLE_EQ(shares.spare, vector.spare) << vector.workers << ' ' << vector.spares;
    EXPECT_DOUBLE_EQ(shares.load, vector.load) << vector.workers << ' ' << vector.spares;
    EXPECT_DOUBLE_EQ(summation_gain(vector.workers, vector.spares), vector.gain);
  }
}

TEST(SummationShares, LoadAllLinksEqually) {
  for (int workers = 2; workers <= 16; ++workers) {
    for (int spares = 1; spares <= workers; ++spares) {
      SummationShares shares = summation_shares(workers, spares);
      EXPECT_NEAR(workers * shares.worker + spares * shares.spare, 1, 1e-12);
      EXPECT_NEAR(shares.load, workers * shares.spare, 1e-12);
      EXPECT_LE(shares.load, summation_shares(workers, spares - 1).load + 1e-12);
    }
  }
}

TEST(SummationShares, OneWorkerNeedsNobody) {
  EXPECT_EQ(summation_shares(1, 1).load, 0);
  EXPECT_EQ(summation_shares(1, 1).worker, 1);
  EXPECT_EQ(summation_gain(1, 1), 1);
}

TEST(SummationShares, RefuseMoreSpareMachinesThanWorkers) {
  try {
    summation_shares(2, 3);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "3 spare machines for 2 workers: more than one for each worker have nothing to do. "
                 "Accepted: 0..2.");
  }
  EXPECT_THROW(summation_shares(0, 0), ConfigError);
  EXPECT_THROW(summation_shares(2, -1), ConfigError);
  EXPECT_THROW(summation_waves(-1, 2, 0, 1), ConfigError);
  EXPECT_THROW(summation_waves(1, 2, 0, 0), ConfigError);
}

TEST(SummationWaves, CoverTheDataOnceInTheRatioOfTheShares) {
  for (int64_t count : {0, 1, 7, 1000, 5'000'000}) {
    int64_t end = 0;
    std::vector<int64_t> of_machine(6);
    for (const SummationWave& wave : summation_waves(count, 4, 2, 1 << 20)) {
      ASSERT_EQ(wave.size(), 6u);
      for (size_t machine = 0; machine < 6; ++machine) {
        EXPECT_EQ(wave[machine].begin, end);
        end += wave[machine].count;
        of_machine[machine] += wave[machine].count;
      }
    }
    EXPECT_EQ(end, count);
    for (size_t machine = 0; machine < 6; ++machine)
      EXPECT_NEAR(static_cast<double>(of_machine[machine]),
                  static_cast<double>(count) * (machine < 4 ? 0.1 : 0.3), 70);
  }
}

TEST(SummationWaves, PartsAreAtMostAsLargeAsAsked) {
  std::vector<SummationWave> waves = summation_waves(250'000'000, 4, 2, 1'000'000);
  EXPECT_EQ(waves.size(), 75u);
  for (const SummationWave& wave : waves)
    for (const Range& part : wave) EXPECT_LE(part.count, 1'000'001);
  EXPECT_EQ(summation_waves(1000, 4, 2, 1'000'000).size(), 1u) << "small data is not cut further";
}

struct Load {
  int64_t in = 0, out = 0;
};

std::vector<Load> loads(int64_t count, int workers, int spares, int64_t largest) {
  std::vector<Load> all;
  for (int rank = 0; rank < workers + spares; ++rank) {
    Load load;
    for (const Step& step : collective_steps({.algorithm = Algorithm::kSummation,
                            .rank = rank,
                            .size = workers + spares,
                            .count = count,
                            .piece = largest,
                            .spares = spares}))
      (step.action == Action::kSend ? load.out : load.in) += step.range.count;
    all.push_back(load);
  }
  return all;
}

// 1 GB of fp32 on four workers with two spare machines: 1.2 GB in and out everywhere.
TEST(SummationSteps, LoadEveryMachineByTheFormulaToWithinOnePart) {
  constexpr int64_t kCount = 250'000'000, kPart = 1'000'000;
  for (const Load& load : loads(kCount, 4, 2, kPart)) {
    EXPECT_NEAR(static_cast<double>(load.out), 1.2 * kCount, kPart);
    EXPECT_NEAR(static_cast<double>(load.in), 1.2 * kCount, kPart);
  }
  for (int workers : {2, 3, 5, 8}) {
    for (int spares = 0; spares <= workers; ++spares) {
      const double wanted = summation_shares(workers, spares).load * kCount;
      for (const Load& load : loads(kCount, workers, spares, kPart)) {
        EXPECT_NEAR(static_cast<double>(load.out), wanted, kPart) << workers << ' ' << spares;
        EXPECT_NEAR(static_cast<double>(load.in), wanted, kPart) << workers << ' ' << spares;
      }
    }
  }
}

TEST(SummationSteps, EveryMessageIsReceivedInTheRoundInWhichItIsSent) {
  for (int spares : {0, 2, 4}) {
    std::vector<std::vector<Step>> lists;
    for (int rank = 0; rank < 4 + spares; ++rank)
      lists.push_back(collective_steps({.algorithm = Algorithm::kSummation,
                                        .rank = rank,
                                        .size = 4 + spares,
                                        .count = 1003,
                                        .piece = 50,
                                        .spares = spares}));
    EXPECT_NO_THROW(validate_steps(lists));
  }
}

TEST(SummationSteps, RefuseSparesThatCannotBe) {
  auto error = [](const CollectiveRequest& request) -> std::string {
    try {
      collective_steps(request);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error({.size = 4, .spares = 1}), "all_reduce by ring: it has no ranks that only sum.");
  EXPECT_EQ(error({.algorithm = Algorithm::kSummation, .size = 4, .spares = 4}),
            "all_reduce: 4 ranks of 4 only sum. Accepted: 0..3.");
  EXPECT_NE(error({.algorithm = Algorithm::kSummation, .size = 4, .spares = 3}).find("Accepted: 0..1."),
            std::string::npos);
}

}  // namespace
}  // namespace yoke::plan
