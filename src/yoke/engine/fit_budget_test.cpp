#include "yoke/engine/fit_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/compute/allocator.h"
#include "yoke/compute/device.h"
#include "yoke/engine/parameter_hash.h"
#include "yoke/engine/step_memory.h"
#include "yoke/engine/synthetic_batches.h"

namespace yoke::engine {
namespace {

using ::testing::HasSubstr;

// Many thin layers on many samples: 8 MB of activations each, and little to compute.
WorkerOptions deep_mlp() {
  WorkerOptions options;
  options.model.name = "mlp";
  options.model.sizes = std::vector<int64_t>(20, 64);
  options.optimizer.optimizer = "adamw";
  options.compute.threads = 1;
  options.batch_size = 32768;
  return options;
}

int64_t peak_of(const WorkerOptions& options, const std::string& recompute) {
  auto worker = make_worker(options);
  StepProbe probe(*worker, options);
  auto segments = compute::recompute_segments(recompute, probe.block_costs(options.batch_size));
  probe.peak_bytes(segments, options.batch_size);
  return probe.peak_bytes(segments, options.batch_size);
}

// The memory of a process is measured, and tests before this one have left some behind: in one of its own.
template <class Body>
void in_new_process(Body body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        body();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

size_t recomputed(const Worker& worker) {
  size_t blocks = 0;
  for (const compute::Segment& one : worker.segments) blocks += one.recompute ? one.end - one.begin : 0;
  return blocks;
}

void expect_peak_within_budget() {
  WorkerOptions options = deep_mlp();
  int64_t whole = peak_of(options, "none"), least = peak_of(options, "budget:1");
  ASSERT_GT(whole, least + 50'000'000);
  int64_t budget = (whole + least) / 2;
  options.compute.recompute = "budget:" + std::to_string(budget);
  auto worker = make_worker(options);
  EXPECT_GT(recomputed(*worker), 0u);
  EXPECT_LT(recomputed(*worker), 15u) << "more than needed";
  std::vector<data::Batch> batches = synthetic_batches(*worker, options.batch_size);
  batches.pop_back();
  compute::reset_peak_memory(worker->device);
  for (int i = 0; i < 3; ++i) {
    worker->strategy->acquire();
    worker->strategy->compute(batches[0].inputs, batches[0].target, {});
    worker->strategy->commit({0.01, false});
  }
  EXPECT_LE(static_cast<double>(compute::peak_memory_bytes(worker->device)),
            1.05 * static_cast<double>(budget));
  compute::limit_kept_memory(0);
}

TEST(RecomputeBudget, IsThePeakOfRealSteps) {
  in_new_process(expect_peak_within_budget);
}

void expect_as_many_blocks_as_fit() {
  WorkerOptions options = deep_mlp();
  auto plain = make_worker(options);
  StepProbe probe(*plain, options);
  auto costs = probe.block_costs(options.batch_size);
  probe.peak_bytes({{0, costs.size(), false}}, options.batch_size);
  for (size_t kept : {6u, 12u}) {
    int64_t budget = probe.peak_bytes(compute::segments_keeping(kept, costs), options.batch_size);
    options.compute.recompute = "budget:" + std::to_string(budget + 2'000'000);
    auto worker = make_worker(options);
    EXPECT_GE(compute::kept_blocks(worker->segments), kept - 1);
    EXPECT_LE(compute::kept_blocks(worker->segments), kept + 1);
    compute::limit_kept_memory(0);
  }
}

TEST(RecomputeBudget, KeepsAsManyBlocksAsFit) {
  in_new_process(expect_as_many_blocks_as_fit);
}

void expect_enough_in_refusal() {
  WorkerOptions options = deep_mlp();
  options.batch_size = 8192;
  options.compute.recompute = "budget:1MB";
  std::string message;
  try {
    make_worker(options);
    FAIL();
  } catch (const ConfigError& error) {
    message = error.what();
  }
  size_t hint = message.find("Hint: budget:");
  ASSERT_NE(hint, std::string::npos) << message;
  options.compute.recompute = message.substr(hint + 6, message.find(',', hint) - hint - 6);
  EXPECT_NO_THROW(make_worker(options)) << options.compute.recompute;
  compute::limit_kept_memory(0);
}

TEST(RecomputeBudget, ThatIsTooSmallIsRefusedWithOneThatIsEnough) {
  in_new_process(expect_enough_in_refusal);
}

TEST(RecomputeBudget, IsMeasuredWithoutLeavingATrace) {
  WorkerOptions options;
  options.model = {.name = "gpt2", .layers = 2, .heads = 2, .width = 16, .vocabulary = 32, .positions = 16};
  options.model.dropout = 0.3;
  options.batch_size = 4;
  auto plain = make_worker(options);
  torch::Tensor drawn = torch::rand({4});
  options.compute.recompute = "budget:100GB";
  auto fitted = make_worker(options);
  EXPECT_TRUE(torch::rand({4}).equal(drawn));
  EXPECT_EQ(parameter_hash(*fitted->model.module), parameter_hash(*plain->model.module));
  EXPECT_EQ(recomputed(*fitted), 0u);
  for (const torch::Tensor& parameter : fitted->model.module->parameters())
    EXPECT_FALSE(parameter.grad().defined());
  compute::limit_kept_memory(0);
}

TEST(RecomputeBudget, IsRefusedWhereItCannotBeMeasured) {
  WorkerOptions options = deep_mlp();
  options.compute.recompute = "budget:1GB";
  options.optimizer.optimizer = "lbfgs";
  EXPECT_THAT([&] { make_worker(options); }, testing::ThrowsMessage<ConfigError>(HasSubstr("lbfgs")));
  options = deep_mlp();
  options.compute.recompute = "budget:1GB";
  options.parallel.sync = "threads";
  options.parallel.data = 2;
  EXPECT_THAT([&] { make_worker(options); }, testing::ThrowsMessage<ConfigError>(HasSubstr("threads")));
}

}  // namespace
}  // namespace yoke::engine
