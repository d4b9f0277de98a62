// What replicas hold before an evaluation and in a checkpoint.
#include <gtest/gtest.h>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/sync/average/average_runs_for_tests.h"

namespace yoke::parallel::average_test {
namespace {

using namespace averaging_tests;

std::vector<AverageOptions> ways() {
  std::vector<AverageOptions> all;
  for (const char* method : {"local", "end", "post_local", "diloco", "gossip"})
    for (int64_t overlap : {0, 2}) {
      AverageOptions one;
      one.method = method;
      one.every = 3;
      one.fragments = overlap > 0 ? 2 : 1;
      one.overlap = overlap;
      one.start = 2;
      all.push_back(one);
    }
  return all;
}

optim::OptimizerOptions plain_adamw() {
  optim::OptimizerOptions options;
  options.optimizer = "adamw";
  return options;
}

TEST(AverageState, AnEvaluationSeesTheAverageAndTrainingGoesOnAsIfItHadNotBeen) {
  for (const AverageOptions& average : ways()) {
    if (average.overlap > 0) continue;  // a round in flight ends early
    auto run = [&](bool evaluates) {
      return on_ranks(3, [&](comm::Communicator& comm) {
        OneReplica replica(comm, average, plain_sgd());
        for (int64_t step = 0; step < 7; ++step) {
          replica.step(step);
          if (!evaluates) continue;
          torch::Tensor own = flat_parameters(replica.model).clone(), mean = own.clone();
          comm::all_reduce(comm, mean, ReduceOp::kMean, "mean");
          replica.strategy->drain();
          replica.strategy->share_buffers();
          EXPECT_LT(apart(flat_parameters(replica.model), mean), 1e-14) << average.method;
        }
        replica.strategy->drain();
        return flat_parameters(replica.model);
      });
    };
    EXPECT_TRUE(run(true)[1].equal(run(false)[1])) << average.method;
  }
}

TEST(AverageState, BuffersAreAveraged) {
  AverageOptions average;
  average.every = 100;
  std::vector<torch::Tensor> ends = on_ranks(3, [&](comm::Communicator& comm) {
    OneReplica replica(comm, average, plain_sgd());
    for (int64_t step = 0; step < 3; ++step) replica.step(step);
    torch::Tensor mean;
    for (const auto& item : replica.model.module->named_buffers())
      if (item.key().ends_with("running_mean")) mean = item.value();
    torch::Tensor expected = mean.clone();
    comm::all_reduce(comm, expected, ReduceOp::kMean, "mean");
    EXPECT_GT(apart(expected, mean), 1e-6) << "replicas have seen different batches";
    replica.strategy->drain();
    EXPECT_LT(apart(expected, mean), 1e-14);
    return mean;
  });
  EXPECT_TRUE(ends[0].equal(ends[2]));
}

// A save in the middle; those who resume from it end with the bits of those who went on.
TEST(AverageState, ACheckpointResumesToTheBit) {
  for (const AverageOptions& average : ways())
    for (const optim::OptimizerOptions& how : {plain_sgd(), plain_adamw()}) {
      std::vector<std::vector<StatePiece>> saved(3);
      std::vector<torch::Tensor> whole = on_ranks(3, [&](comm::Communicator& comm) {
        OneReplica replica(comm, average, how);
        for (int64_t step = 0; step < 11; ++step) {
          replica.step(step);
          if (step != 4) continue;
          replica.strategy->drain();
          saved[static_cast<size_t>(comm.rank())] = replica.strategy->state();
          for (StatePiece& one : saved[static_cast<size_t>(comm.rank())])
            one.values = one.values.detach().clone();
        }
        replica.strategy->drain();
        return flat_parameters(replica.model);
      });
      for (size_t i = 0; i < saved[0].size(); ++i)
        EXPECT_TRUE(saved[0][i].values.equal(saved[2][i].values))
            << saved[0][i].name << " " << average.method;
      std::vector<torch::Tensor> resumed = on_ranks(3, [&](comm::Communicator& comm) {
        OneReplica replica(comm, average, how);
        std::vector<StatePiece> state = replica.strategy->state();
        EXPECT_EQ(state.size(), saved[0].size());
        torch::NoGradGuard no_grad;
        for (size_t i = 0; i < state.size(); ++i) state[i].values.copy_(saved[0][i].values);
        replica.strategy->restored(5);
        torch::AutoGradMode grad(true);
        for (int64_t step = 5; step < 11; ++step) replica.step(step);
        replica.strategy->drain();
        return flat_parameters(replica.model);
      });
      EXPECT_TRUE(whole[1].equal(resumed[1]))
          << average.method << " overlap " << average.overlap << " " << how.optimizer;
    }
}

TEST(AverageState, AStopReachesAllRanksInTheSameStep) {
  AverageOptions average;
  average.every = 5;
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    OneReplica replica(comm, average, plain_sgd());
    std::vector<int> stops;
    for (int64_t step = 0; step < 16; ++step) {
      replica.strategy->acquire();
      torch::Tensor x = torch::ones({4, 5}, torch::kFloat64), y = torch::zeros({4, 3}, torch::kFloat64);
      torch::Tensor loss = replica.strategy->compute({x}, y, {}).loss;
      stops.push_back(replica.strategy->agree({loss, comm.rank() == 1 && step == 3 ? 15 : 0}).stop_signal);
      replica.strategy->commit({0.1, false});
    }
    std::vector<int> expected(16, 0);
    expected.back() = 15;
    EXPECT_EQ(stops, expected);
    EXPECT_EQ(replica.strategy->agree({torch::zeros({}), comm.rank() == 2 ? 2 : 0}).stop_signal, 2);
  });
}

}  // namespace
}  // namespace yoke::parallel::average_test
