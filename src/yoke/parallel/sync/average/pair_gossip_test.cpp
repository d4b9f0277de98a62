#include "yoke/parallel/sync/average/pair_gossip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <mutex>

#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/sync/average/average_runs_for_tests.h"

namespace yoke::parallel {
namespace {

using namespace averaging_tests;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

AverageOptions pairs_on(const char* graph, int64_t every = 1) {
  AverageOptions options;
  options.method = "async_gossip";
  options.graph = graph;
  options.every = every;
  return options;
}

torch::Tensor start_of(int rank) {
  return torch::sin(torch::arange(50, torch::kFloat64) * (rank + 1.0));
}

double distance_from_mean(comm::Communicator& comm, const torch::Tensor& own) {
  torch::Tensor mean = own.clone();
  comm::all_reduce(comm, mean, ReduceOp::kMean, "mean");
  torch::Tensor square = (own - mean).square().sum().reshape({1});
  comm::all_reduce(comm, square, ReduceOp::kSum, "distance");
  return std::sqrt(square.item<double>());
}

// Everybody asks all the time, on every graph: no cycle of waits, the mean stays, replicas come together. How
// often pairs meet is up to the machine; each one is as good as theory says, and the schedule costs at most
// half of the exponent.
TEST(PairGossip, ReplicasComeTogetherOnEveryGraphAndKeepTheMean) {
  const std::pair<const char*, int> places[] = {{"ring", 2},      {"ring", 5},        {"torus", 6},
                                                {"hypercube", 4}, {"exponential", 6}, {"full", 5}};
  for (const auto& [kind, ranks] : places) {
    const plan::MixingGraph graph = plan::mixing_graph(kind, ranks);
    on_ranks(ranks, [&, kind = kind](comm::Communicator& comm) {
      torch::Tensor own = start_of(comm.rank()), mean = own.clone();
      comm::all_reduce(comm, mean, ReduceOp::kMean, "mean");
      const double before = distance_from_mean(comm, own);
      PairGossip pairs(comm, graph, own);
      pairs.reset(own);
      pairs.resume();
      for (int64_t least = 1; least <= 10; ++least) {  // everybody takes part alike
        while (pairs.pairs() < least) {
          pairs.meet(own, /*asks=*/true);
          std::this_thread::yield();
        }
        comm.barrier().wait();
      }
      pairs.pause();
      comm.barrier().wait();
      pairs.meet(own, false);
      torch::Tensor after = own.clone(), count = torch::full({1}, pairs.pairs(), torch::kInt64);
      comm::all_reduce(comm, after, ReduceOp::kMean, "mean after");
      comm::all_reduce(comm, count, ReduceOp::kSum, "pairs");
      EXPECT_LT(apart(after, mean), 1e-12) << kind;
      EXPECT_EQ(count.item<int64_t>() % 2, 0) << "both sides of a pair count it";
      const double expected = std::pow(plan::pair_contraction(graph), count.item<double>() / 2 / 2);
      EXPECT_LE(distance_from_mean(comm, own), std::sqrt(expected) * before + 1e-9) << kind;
      return own;
    });
  }
}

// The slow worker computes one step for as long as the others take for all of theirs.
TEST(PairGossip, ASlowWorkerHoldsNobodyAndIsAveragedWithMeanwhile) {
  constexpr int kRanks = 3;
  std::latch others(kRanks - 1);
  on_ranks(kRanks, [&](comm::Communicator& comm) {
    OneReplica replica(comm, pairs_on("full"), plain_sgd(0), {}, torch::kFloat64, /*norm=*/false);
    if (comm.rank() == 0) {
      replica.strategy->acquire();
      others.wait();
      replica.step(0);
    } else {
      for (int64_t step = 0; step < 40; ++step) replica.step(step);
      others.count_down();
    }
    replica.strategy->drain();
    EXPECT_GT(replica.strategy->traffic().data, 0);
    return flat_parameters(replica.model);
  });
}

TEST(PairGossip, StepsOfAllReplicasCountAndAllEndWithTheSameBits) {
  std::vector<torch::Tensor> ends = trained(4, pairs_on("ring", /*every=*/2), plain_sgd(), 12);
  std::vector<torch::Tensor> alone = trained(
      4,
      [] {
        AverageOptions end;
        end.method = "end";
        return end;
      }(),
      plain_sgd(), 12);
  for (const torch::Tensor& own : ends) EXPECT_TRUE(own.equal(ends[0]));
  EXPECT_LT(apart(ends[0], alone[0]), 0.2);
  EXPECT_TRUE(ends[0].isfinite().all().item<bool>());
}

// Without gradients nothing but pairs moves values: what is shown in between changes nothing.
TEST(PairGossip, AnEvaluationShowsTheMeanAndTrainingContinuesFromTheOwnValues) {
  on_ranks(3, [&](comm::Communicator& comm) {
    OneReplica replica(comm, pairs_on("ring"), plain_sgd(0), {}, torch::kFloat64, /*norm=*/false);
    torch::Tensor shown;
    for (int64_t step = 0; step < 6; ++step) {
      replica.step(step, step < 3 ? 0.1 : 0.0);
      if (step < 2) continue;
      replica.strategy->drain();
      torch::Tensor now = flat_parameters(replica.model).clone();
      if (shown.defined()) {
        EXPECT_LT(apart(now, shown), 1e-12);
      }
      shown = now;
    }
    return shown;
  });
}

TEST(PairGossip, AllStopAfterTheSameStepWhereverTheyAre) {
  constexpr int kRanks = 4;
  std::mutex mutex;
  std::vector<int64_t> stopped;
  on_ranks(kRanks, [&](comm::Communicator& comm) {
    PairGossip pairs(comm, plan::mixing_graph("ring", kRanks), torch::zeros({3}));
    int64_t step = 0;
    int signal = 0;
    for (const Deadline patience = Deadline::after(60); signal == 0 && !patience.passed();) {
      ++step;
      std::this_thread::yield();
      signal = pairs.agree_to_stop(step, comm.rank() == 2 && step >= 20 ? 15 : 0);
    }
    EXPECT_EQ(signal, 15);
    std::lock_guard lock(mutex);
    stopped.push_back(step);
    return torch::zeros({1});
  });
  EXPECT_THAT(stopped, ::testing::Each(stopped.front()));
  EXPECT_GE(stopped.front(), 20);
}

TEST(PairGossip, AReplicaThatFailsEndsTheOthers) {
  auto run = [] {
    on_ranks(3, [&](comm::Communicator& comm) {
      OneReplica replica(comm, pairs_on("ring"), plain_sgd(), {}, torch::kFloat64, /*norm=*/false);
      for (int64_t step = 0;; ++step) {
        if (comm.rank() == 1 && step == 3) throw ConfigError("out of data");
        replica.step(step);
      }
      return torch::zeros({1});
    });
  };
  EXPECT_THAT(run, ThrowsMessage<ConfigError>(HasSubstr("out of data")));
}

}  // namespace
}  // namespace yoke::parallel
