#include "yoke/parallel/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CheckOptimizer, LbfgsNeedsTheWholeGradientAndOneLoss) {
  Choices replicas;
  for (const char* any : {"sgd", "adamw", "adagrad", "lbfgs"})
    EXPECT_NO_THROW(check_optimizer(replicas, any));
  const auto refused = [](auto change, const std::string& setting) {
    Choices choices;
    change(choices.parallel);
    EXPECT_NO_THROW(check_optimizer(choices, "adamw"));
    EXPECT_THAT([&] { check_optimizer(choices, "lbfgs"); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("lbfgs"), HasSubstr(setting))));
  };
  refused([](ParallelOptions& o) { o.tensor = 2; }, "parallel.tensor");
  refused([](ParallelOptions& o) { o.pipeline = 2; }, "parallel.pipeline");
  refused([](ParallelOptions& o) { o.partition = "auto"; }, "parallel.partition");
  refused([](ParallelOptions& o) { o.zero = 1; }, "parallel.zero");
  refused([](ParallelOptions& o) { o.zero = 3; }, "parallel.zero");
  refused([](ParallelOptions& o) { o.sync = "threads"; }, "threads");
  refused([](ParallelOptions& o) { o.sync = "average"; }, "average");
}

TEST(Choose, SpareRanksSumForReplicasOfTheWholeModel) {
  const auto refused = [](auto change, const std::string& setting) {
    Choices choices;
    choices.parallel.sync = "hybrid";
    EXPECT_TRUE(choose(choices).has("hybrid"));
    change(choices.parallel);
    EXPECT_THAT([&] { choose(choices); }, ThrowsMessage<ConfigError>(AllOf(
                                              HasSubstr("parallel.sync = \"hybrid\""), HasSubstr(setting))));
  };
  refused([](ParallelOptions& o) { o.tensor = 2; }, "parallel.tensor");
  refused([](ParallelOptions& o) { o.pipeline = 2; }, "parallel.pipeline");
  refused([](ParallelOptions& o) { o.partition = "auto"; }, "parallel.partition");
  refused([](ParallelOptions& o) { o.zero = 1; }, "parallel.zero");
}

TEST(CheckOptimizer, LbfgsOnServersTakesNoWorkerBackAndHasNoCopies) {
  Choices served;
  served.parallel.sync = "ps";
  EXPECT_NO_THROW(check_optimizer(served, "lbfgs"));
  served.ps.replicas = 1;
  EXPECT_THAT([&] { check_optimizer(served, "lbfgs"); },
              ThrowsMessage<ConfigError>(HasSubstr("ps.replicas = 1")));
  served.ps.replicas = 0;
  served.ps.on_worker_loss = "restart";
  EXPECT_NO_THROW(check_optimizer(served, "sgd"));
  EXPECT_THAT([&] { check_optimizer(served, "lbfgs"); },
              ThrowsMessage<ConfigError>(HasSubstr("ps.on_worker_loss")));
}

}  // namespace
}  // namespace yoke::parallel
