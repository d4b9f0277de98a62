#include "cli/lab_compare_cluster.h"

#include <gtest/gtest.h>

#include "cli/run_config.h"

namespace yoke::cli {
namespace {

constexpr ModelledCluster kCluster{
    .workers = 4, .link = {.bytes_per_second = 1e6, .latency = 0}, .slow = 2, .compute = 0.1};

RunConfig with(const std::vector<config::Override>& keys) {
  Configuration fresh;
  fresh.load("", keys);
  return fresh.values;
}

TEST(ModelledCluster, OneDeviceDoesTheWorkOfAll) {
  const Progress progress = one_device(kCluster, 3);
  ASSERT_EQ(progress.seconds.size(), 3U);
  EXPECT_DOUBLE_EQ(progress.seconds[2], 3 * 4 * 0.1);
  EXPECT_EQ(progress.bytes[2], 0);
}

TEST(ModelledCluster, WhoSumsInEveryStepWaitsForTheSlowest) {
  EXPECT_NEAR(summing_in_every_step(kCluster, 0, 2, 10).seconds[9], 10 * 0.2, 1e-9);
  const Progress loaded = summing_in_every_step(kCluster, 1e6, 2, 10);  // a second on the link
  EXPECT_GT(loaded.seconds[9], 10 * 0.9);
  EXPECT_NEAR(loaded.bytes[9], 10 * 1e6, 1e4);
}

TEST(ModelledCluster, AveragingNowAndThenSendsLess) {
  const RunConfig config = with({{"model.name", "mlp", ""},
                                 {"parallel.sync", "average", ""},
                                 {"average.method", "local", ""},
                                 {"average.every", "5", ""}});
  const double model = 203'530 * 4;
  const Progress progress = averaging_now_and_then(kCluster, config, 10);
  EXPECT_LT(progress.bytes[9], 3.01 * 1.5 * model);
  EXPECT_GT(progress.bytes[9], 1.9 * 1.5 * model);
  EXPECT_GE(progress.seconds[9], 10 * 0.2);
}

TEST(ModelledCluster, ServersThatWaitForAllAreAsSlowAsTheSlowestAndOthersAreNot) {
  ModelledCluster fast = kCluster;
  fast.link.bytes_per_second = 1e12;
  auto seconds = [&](const std::string& policy) {
    const RunConfig config = with({{"model.name", "mlp", ""},
                                   {"parallel.sync", "ps", ""},
                                   {"ps.policy", policy, ""},
                                   {"slowdown.law", "const:2x", ""},
                                   {"slowdown.workers", "3", ""}});
    return parameter_servers(fast, config, 10).seconds[9];
  };
  EXPECT_NEAR(seconds("sync"), 10 * 0.2, 0.02);
  EXPECT_NEAR(seconds("async"), 10 * 0.1 * 4 / 3.5, 0.03);  // 3.5 workers' worth of minibatches
}

TEST(ModelledCluster, APipelineFillsAndDrains) {
  ModelledCluster equal = kCluster;
  equal.slow = 1;
  const RunConfig config = with({{"parallel.pipeline", "4", ""},
                                 {"pipeline.schedule", "1f1b", ""},
                                 {"pipeline.microbatches", "4", ""}});
  EXPECT_NEAR(pipeline_of_stages(equal, config, 0, 1).seconds[0], (4 + 3) * 0.1 / 4, 1e-9);
  EXPECT_GT(pipeline_of_stages(kCluster, config, 0, 1).seconds[0], 1.5 * (4 + 3) * 0.1 / 4);
}

}  // namespace
}  // namespace yoke::cli
