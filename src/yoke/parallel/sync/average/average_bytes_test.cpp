// Bytes of each method against its formula. A rank of an all-reduce of b bytes over n ranks sends
// 2 (n - 1) / n b on average, one of a gossip round d b.
#include <gtest/gtest.h>

#include <atomic>

#include "yoke/parallel/sync/average/average_runs_for_tests.h"
#include "yoke/plan/averaging/graph.h"

namespace yoke::parallel::average_test {
namespace {

using namespace averaging_tests;

// Sent by all ranks together in `steps` steps, parameters alone.
int64_t sent(int ranks, const AverageOptions& average, int64_t steps) {
  std::atomic<int64_t> all = 0;
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    OneReplica replica(comm, average, plain_sgd(), {}, torch::kFloat64, /*norm=*/false);
    const int64_t before = comm.counters().bytes_sent;
    for (int64_t step = 0; step < steps; ++step) replica.step(step);
    all += comm.counters().bytes_sent - before;
  });
  return all;
}

int64_t model_bytes() {
  return flat_parameters(averaged_model(torch::kFloat64, /*norm=*/false)).numel() * 8;
}

class BytesOfAveraging : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, BytesOfAveraging, ::testing::Values(2, 3, 4, 8));

TEST_P(BytesOfAveraging, RoundsOfAllReduces) {
  const int ranks = GetParam();
  for (const char* method : {"local", "diloco"})
    for (int64_t fragments : {1, 2})
      for (int64_t every : {2, 4}) {
        AverageOptions average;
        average.method = method;
        average.every = every;
        average.fragments = fragments;
        EXPECT_EQ(sent(ranks, average, 8), 8 / every * 2 * (ranks - 1) * model_bytes())
            << method << " every " << every << " in " << fragments;
      }
}

TEST_P(BytesOfAveraging, OnceAtTheEndSendsNothingBefore) {
  AverageOptions average;
  average.method = "end";
  EXPECT_EQ(sent(GetParam(), average, 8), 0);
}

TEST_P(BytesOfAveraging, PostLocalSendsGradientsFirst) {
  AverageOptions average;
  average.method = "post_local";
  average.every = 4;
  average.start = 4;
  const int ranks = GetParam();
  // Beside the gradients of four steps the first one agrees on the order of buckets, in a few bytes.
  const int64_t gradients = 4 * 2 * (ranks - 1) * model_bytes(), rounds = 2 * (ranks - 1) * model_bytes();
  average.start = 8;
  const int64_t only_gradients = sent(ranks, average, 4);
  EXPECT_GE(only_gradients, gradients);
  EXPECT_LE(only_gradients, gradients + gradients / 4);
  average.start = 4;
  EXPECT_EQ(sent(ranks, average, 8), only_gradients + rounds);
}

TEST_P(BytesOfAveraging, GossipSendsToItsNeighbours) {
  const int ranks = GetParam();
  for (const std::string& graph : plan::mixing_graph_names()) {
    AverageOptions average;
    average.method = "gossip";
    average.graph = graph;
    average.every = 2;
    if ((graph == "torus" && ranks < 4) || (graph == "hypercube" && ranks == 3)) continue;
    const int degree = plan::mixing_graph(graph, ranks).degree();
    EXPECT_EQ(sent(ranks, average, 8), 4 * ranks * degree * model_bytes()) << graph;
  }
}

}  // namespace
}  // namespace yoke::parallel::average_test
