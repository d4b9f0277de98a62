// What a checkpoint keeps of a run holds in another world as well.
#include "yoke/engine/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <limits>
#include <mutex>
#include <set>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/engine/state_pieces.h"

namespace yoke::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 197;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

enum class Kind { kDdp, kZero, kPipeline };

// Seeds and weights are drawn from one generator.
std::mutex building;

struct Rank {
  Rank(comm::Communicator& world, Kind kind, int64_t batch_size) : comm(world.size() > 1 ? &world : nullptr) {
    WorkerOptions options;
    options.model.name = "mlp";
    options.model.sizes = {784, 8, 8, 10};
    options.optimizer.optimizer = "adamw";
    options.compute.threads = 1;
    options.batch_size = batch_size;
    options = on_ranks(options, world);
    if (kind == Kind::kPipeline && world.size() > 1) {
      options.parallel.pipeline = 2;
      options.pipeline.microbatches = 1;
    }
    options.parallel.zero = kind == Kind::kZero ? 2 : 0;
    world.barrier().wait();
    {
      std::unique_lock lock(building, std::defer_lock);
      if (world.size() == 1) lock.lock();  // making a worker is collective otherwise
      worker = make_worker(options);
    }
    data.samples = kSamples;
    data.batch_size = batch_size;
    data.drop_last = false;
    samples = data::open(data, data::Split::kTrain, worker->model.sample, 1);
    const parallel::DataShare share = worker->strategy->share();
    data::Shard shard{share.part, share.parts};
    loader = std::make_unique<data::Loader>(*samples, data, /*seed=*/1, shard);
  }
  comm::Communicator* comm;
  std::unique_ptr<Worker> worker;
  data::DataOptions data;
  std::unique_ptr<data::Dataset> samples;
  std::unique_ptr<data::Loader> loader;
};

// The checkpoint of a run that stopped at `position`; its tensors are those of one device.
checkpoint::Loaded saved_at(data::Position position) {
  checkpoint::Loaded loaded;
  comm::run_ranks(1, [&](comm::Communicator& comm) {
    Rank rank(comm, Kind::kDdp, 5);
    loaded.state = collect_state(*rank.worker, {7, 70, position, 2.5}, "[data]\nbatch_size = 5\n");
  });
  loaded.path = "step-7";
  return loaded;
}

TEST(RunState, APositionHoldsInEveryWorldForEveryStrategy) {
  const data::Position stopped{3, 101};
  const checkpoint::Loaded loaded = saved_at(stopped);
  for (Kind kind : {Kind::kDdp, Kind::kZero, Kind::kPipeline}) {
    for (int ranks : {1, 2, 4}) {
      for (int64_t batch_size : {3, 8}) {
        comm::run_ranks(ranks, [&](comm::Communicator& comm) {
          Rank rank(comm, kind, batch_size);
          Progress progress = restore_state(loaded, *rank.worker, *rank.loader);
          EXPECT_EQ(progress.step, 7);
          EXPECT_EQ(progress.samples, 70);
          EXPECT_EQ(progress.loss, 2.5);
          EXPECT_EQ(progress.position, stopped);
          EXPECT_EQ(rank.loader->position(), stopped);
        });
      }
    }
  }
}

TEST(RunState, ReadsPositionsOfOlderCheckpoints) {
  nlohmann::json rest = {{"position", {{"epoch", 2}, {"batch", 45}}},
                         {"replicas", 2},
                         {"configuration", "[data]\nbatch_size = 33\n\n[parallel]\nsync = \"allreduce\"\n"}};
  EXPECT_EQ(saved_position(rest, "x"), (data::Position{2, 45 * 66}));
  rest["configuration"] = "[data]\nbatch_size = 10\n\n[parallel]\ndata = 3\nsync = \"threads\"\n";
  rest["replicas"] = 1;
  EXPECT_EQ(saved_position(rest, "x"), (data::Position{2, 45 * 30}));
  rest["configuration"] = "[data]\nbatch_size = 10\n\n[parallel]\nsync = \"ps\"\n";
  EXPECT_THROW(saved_position(rest, "x"), CheckpointError);
  rest["configuration"] = "";
  EXPECT_THAT(
      [&] { saved_position(rest, "run/step-45"); },
      testing::ThrowsMessage<CheckpointError>(AllOf(HasSubstr("run/step-45"), HasSubstr("--resume never"))));
}

TEST(RunState, WhatIsNotFiniteIsNotSavedByAnyStrategy) {
  for (Kind kind : {Kind::kDdp, Kind::kZero, Kind::kPipeline}) {
    for (bool in_weights : {true, false}) {
      std::mutex mutex;
      std::multiset<std::string> errors;
      comm::run_ranks(2, [&](comm::Communicator& comm) {
        Rank rank(comm, kind, 4);
        EXPECT_NO_THROW(collect_state(*rank.worker, {1, 4, {}, 1}, ""));
        torch::NoGradGuard no_grad;
        auto spoil = !in_weights               ? rank.worker->optimizer->state()
                     : kind == Kind::kPipeline ? rank.worker->maker->parameters()
                                               : named_tensors(*rank.worker->model.module);
        // Replicas are equal; of shards and stages one is enough.
        bool replicated = kind == Kind::kDdp || (kind == Kind::kZero && in_weights);
        if (replicated || comm.rank() == 1) spoil.back().second.view({-1})[0] = kNotANumber;
        try {
          collect_state(*rank.worker, {1, 4, {}, 1}, "");
        } catch (const ConfigError& error) {
          std::lock_guard lock(mutex);
          errors.insert(error.what());
        }
      });
      ASSERT_EQ(errors.size(), 2u);
      EXPECT_EQ(errors.count(*errors.begin()), 2u);  // all ranks throw the same
      EXPECT_THAT(*errors.begin(), HasSubstr("not finite, so this state is not saved"));
    }
  }
}

std::unique_ptr<Worker> mlp_worker(torch::ScalarType type) {
  WorkerOptions options;
  options.model.name = "mlp";
  options.model.sizes = {784, 8, 10};
  options.optimizer.optimizer = "adamw";
  options.compute.threads = 1;
  options.type = type;
  std::lock_guard lock(building);
  return make_worker(options);
}

TEST(RunState, Fp32WeightsAndNarrowOnesWithMastersContinueEachOther) {
  torch::NoGradGuard no_grad;
  auto full = mlp_worker(torch::kFloat), narrow = mlp_worker(torch::kHalf), again = mlp_worker(torch::kFloat);
  for (torch::Tensor& weight : full->model.module->parameters()) weight.add_(1e-5);  // lost by rounding
  restore_pieces(state_here(*full), *narrow, "test");
  restore_pieces(state_here(*narrow), *again, "test");
  const auto masters = narrow->optimizer->state();
  for (const auto& item : full->model.module->named_parameters()) {
    const auto rounded = narrow->model.module->named_parameters()[item.key()];
    EXPECT_TRUE(rounded.equal(item.value().to(torch::kHalf))) << item.key();
    EXPECT_TRUE(again->model.module->named_parameters()[item.key()].equal(item.value())) << item.key();
    for (const auto& [name, master] : masters) {
      if (name != "master/" + item.key()) continue;
      EXPECT_TRUE(master.equal(item.value())) << name;
    }
  }
}

}  // namespace
}  // namespace yoke::engine
