#include "yoke/parallel/common/step_news.h"

#include <gtest/gtest.h>

#include <csignal>

#include "yoke/comm/run_ranks.h"

namespace yoke::parallel {
namespace {

TEST(StepNews, LossesAreAveragedAndAllRanksStopWithOneSignal) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    const int signals[] = {SIGINT, 0, SIGTERM};
    StepNews here{torch::tensor(static_cast<float>(comm.rank())), signals[comm.rank()]};
    StepNews all = reduce_news(here, comm, torch::kCPU, /*replicas=*/3);
    EXPECT_EQ(all.loss.item<double>(), 1.0);
    EXPECT_EQ(all.stop_signal, SIGTERM);
    here.stop_signal = 0;
    EXPECT_EQ(reduce_news(here, comm, torch::kCPU, 3).stop_signal, 0);
  });
}

}  // namespace
}  // namespace yoke::parallel
