// Fully sharded training equals one device, or data parallel where BatchNorm sees each rank's batch.
#include "yoke/parallel/sync/sharded/fully_sharded_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/parallel/sync/sharded/sharded_runs_for_tests.h"

namespace yoke::parallel::sharded_testing {
namespace {

using ::testing::HasSubstr;

TEST(FullyShardedStrategy, EqualsOneDevice) {
  for (const models::ModelOptions& model : {mlp(), gpt2()}) {
    NamedTensors expected = alone({model});
    for (int ranks : {1, 2, 3, 4}) {
      EXPECT_LT(difference(fully({model, ranks}), expected), 1e-10) << model.name << " " << ranks;
      EXPECT_LT(difference(fully({model, ranks, gathering()}), expected), 1e-10)
          << model.name << " " << ranks << " gathering";
    }
  }
}

TEST(FullyShardedStrategy, EqualsDataParallelWithBatchNorm) {
  for (int ranks : {2, 3}) {
    Layout run{vgg(), ranks, gathering()};
    EXPECT_LT(difference(fully(run), data_parallel(run)), 1e-10);
  }
}

TEST(FullyShardedStrategy, EqualsOneDeviceWithMicroBatchesRecomputationAndClipping) {
  for (const models::ModelOptions& model : {mlp(), gpt2()})
    for (bool share : {true, false}) {
      Layout run{model, 2};
      run.shard.share = share;
      NamedTensors expected = alone(run);
      run.accumulate = 2;
      EXPECT_LT(difference(fully(run), expected), 1e-10);
      run.recompute = true;
      EXPECT_LT(difference(fully(run), expected), 1e-10) << model.name << " recomputed";
      run.ranks = 3;
      run.clip = 0.05;
      Layout clipped{model};
      clipped.clip = 0.05;
      EXPECT_LT(difference(fully(run), alone(clipped)), 1e-10) << model.name << " clipped";
    }
}

TEST(FullyShardedStrategy, EqualsOneDeviceWithUnitsKeptAndGatheredFarAhead) {
  Layout run{gpt2(), 2, gathering()};
  NamedTensors expected = alone(run);
  run.shard.prefetch = 3;
  EXPECT_LT(difference(fully(run), expected), 1e-10);
  run.shard.reshard_after_forward = false;
  run.shard.prefetch = 0;
  EXPECT_LT(difference(fully(run), expected), 1e-10);
}

// An overflow on one rank is a skipped step on all, and the scale falls everywhere.
TEST(FullyShardedStrategy, SkipsAStepWhoseGradientsOverflowOnOneRank) {
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    Layout run;
    run.type = torch::kFloat32;
    models::Model model = build(run);
    FullyShard shard(model, comm, gathering());
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.init_scale = 1024});
    OneDeviceOptions options;
    options.precision = Precision::kFp16;
    FullyShardedStrategy strategy(model, *optimizer, scaler, options, shard);
    NamedTensors before = shard.full_parameters();
    Sample all = sample_of(model, 0, run.type);
    torch::Tensor x = all.x.narrow(0, comm.rank() * 6, 6).clone(), y = all.y.narrow(0, comm.rank() * 6, 6);
    if (comm.rank() == 1) x.fill_(std::numeric_limits<float>::infinity());
    strategy.acquire();
    strategy.compute({x}, y, {});
    EXPECT_EQ(strategy.first_non_finite_gradient(), "layers.0.weight");
    EXPECT_FALSE(strategy.commit({0.01, false}).updated);
    EXPECT_EQ(strategy.loss_scale(), 512);
    EXPECT_EQ(difference(shard.full_parameters(), before), 0);
    strategy.acquire();
    strategy.compute({all.x.narrow(0, comm.rank() * 6, 6)}, y, {});
    EXPECT_TRUE(strategy.commit({0.01, false}).updated);
    EXPECT_GT(difference(shard.full_parameters(), before), 0);
  });
}

TEST(FullyShardedStrategy, GivesThePiecesOfTheGradients) {
  Layout run;
  models::Model model = build(run);
  Sample all = sample_of(model, 0, run.type);
  model.loss(model.forward({all.x}), all.y).backward();
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    models::Model own = build(run);
    FullyShard shard(own, comm, {});
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.enabled = false});
    FullyShardedStrategy strategy(own, *optimizer, scaler, {}, shard);
    strategy.acquire();
    strategy.compute({all.x.narrow(0, comm.rank() * 4, 4)}, all.y.narrow(0, comm.rank() * 4, 4), {});
    auto expected = model.module->named_parameters();
    for (const StatePiece& piece : strategy.gradients()) {
      torch::Tensor part = checkpoint::cut(expected[piece.name].grad(), piece);
      EXPECT_LT((piece.values - part).abs().max().item<double>(), 1e-12) << piece.name;
    }
  });
}

// The model's second block throws once, on rank 1, at the given call.
models::Model failing(models::Model model, int rank, int fails_at) {
  auto inner = model.blocks[1].forward;
  auto calls = std::make_shared<int>(0);
  model.blocks[1].forward = [=](const models::Tensors& x) {
    if (rank == 1 && ++*calls == fails_at) throw std::runtime_error("out of memory");
    return inner(x);
  };
  return model;
}

// Where ranks share memory a forward() has sent nothing.
TEST(FullyShardedStrategy, RepeatsAStepThatHadSentNothing) {
  Layout run;
  NamedTensors expected = alone(run);
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    models::Model model = failing(build(run), comm.rank(), 3);
    FullyShard shard(model, comm, {});
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.enabled = false});
    FullyShardedStrategy strategy(model, *optimizer, scaler, {}, shard);
    for (int step = 0; step < kSteps; ++step) {
      try {
        take_step(strategy, model, run, step, comm.rank(), 2);
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "out of memory");
        take_step(strategy, model, run, step, comm.rank(), 2);
      }
    }
    EXPECT_LT(difference(shard.full_parameters(), expected), 1e-10);
  });
}

TEST(FullyShardedStrategy, TellsAllRanksOfAStepThatFailedHalfWay) {
  Layout run;
  std::array<std::string, 2> errors;
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    models::Model model = failing(build(run), comm.rank(), 3);
    FullyShard shard(model, comm, gathering());
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.enabled = false});
    FullyShardedStrategy strategy(model, *optimizer, scaler, {}, shard);
    for (int step = 0; step < 4; ++step) {
      try {
        take_step(strategy, model, run, step, comm.rank(), 2);
      } catch (const CommError& error) {
        errors[static_cast<size_t>(comm.rank())] = error.what();
        return;
      } catch (const std::runtime_error&) {  // rank 1 tries the next step
      }
    }
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("failed half-way"));
}

}  // namespace
}  // namespace yoke::parallel::sharded_testing
