// Shards of a sharded run survive the ranks that held them.
#include "yoke/engine/shard_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/shard_restore.h"
#include "yoke/engine/state_pieces.h"
#include "yoke/parallel/elastic.h"
#include "yoke/parallel/fit.h"

namespace yoke::engine {
namespace {

using ::testing::HasSubstr;

std::mutex building;

struct Setting {
  int64_t zero = 1;
  std::string optimizer = "adamw";
  bool share = true;  // parameters in memory that ranks share
  int64_t stages = 1;
  int64_t data = 0;  // replicas of stages
};

parallel::Choices layout_of(const parallel::Choices& choices, const Setting& setting, int ranks) {
  parallel::Choices asked = choices;
  asked.parallel.zero = setting.zero;
  asked.parallel.pipeline = setting.stages;
  asked.parallel.data = setting.data;
  asked.pipeline.microbatches = 3;
  return parallel::fit_to_ranks(asked, /*batch_size=*/12, ranks);
}

// A rank with a model, data and an engine.
struct Rank {
  Rank(comm::Communicator& comm, const Setting& setting) {
    WorkerOptions options;
    options.model.name = "mlp";
    options.model.sizes = {784, 19, 10};
    if (setting.stages > 1) options.model.sizes = {784, 19, 17, 13, 10};
    options.optimizer.optimizer = setting.optimizer;
    options.optimizer.lr = 0.01;
    options.compute.threads = 1;
    options.ddp.first_bucket_bytes = 1000;
    options.ddp.bucket_bytes = 8000;
    options.ddp.share_parameters = setting.share;
    options = on_ranks(options, comm);
    static_cast<parallel::Choices&>(options) = layout_of(options, setting, comm.size());
    options.batch_size = kBatch / parallel::mesh_of(options, comm.size()).data;
    {
      std::unique_lock lock(building, std::defer_lock);
      if (comm.size() == 1) lock.lock();  // making a worker is collective otherwise
      worker = make_worker(options);
    }
    set_weights();
    data.samples = 96;
    data.batch_size = options.batch_size;
    samples = data::open(data, data::Split::kTrain, worker->model.sample, 1);
    const parallel::DataShare share = worker->strategy->share();
    loader = std::make_unique<data::Loader>(*samples, data, 1, data::Shard{share.part, share.parts});
  }

  // The same in every run: generators are the process's, and ranks are threads.
  void set_weights() {
    torch::NoGradGuard no_grad;
    for (const parallel::StatePiece& piece : worker->strategy->state()) {
      if (piece.kind != parallel::StatePiece::Kind::kParameter) continue;
      const auto salt = static_cast<double>(piece.name.size());
      torch::Tensor places =
          torch::arange(piece.values.numel(), torch::kFloat64) + static_cast<double>(piece.begin);
      piece.values.copy_((torch::sin(places * 0.37 + salt) * 0.05).view_as(piece.values));
    }
  }

  // To `step`, with a keeper.
  void train(comm::Communicator& comm, int64_t step, const Progress& from, int64_t replicas = 1,
             int64_t epoch = 0) {
    LoopPlan plan;
    plan.total_steps = step;
    plan.learning_rate = [](int64_t) { return 0.01; };
    plan.wait_for_loss = false;
    engine.emplace(*worker->strategy, *loader, plan);
    engine->resume_at(from.step, from.samples, from.loss);
    auto own =
        std::make_unique<ShardKeeper>(*worker, *loader, *engine, comm, ShardKeeperOptions{epoch, replicas});
    keeper = own.get();
    engine->attach_before_update([this] { keeper->before_update(); });
    engine->attach(std::move(own));
    engine->run({});
  }

  Progress restore(comm::Communicator& comm, const Holdings& held, const ShardChoice& choice) {
    const StepFacts facts = share_facts(held, choice, comm);
    checkpoint::Loaded loaded;
    loaded.state.rest = facts.rest;
    return restore_state(loaded, *worker, *loader,
                         [&] { restore_shards(held, choice, facts, *worker, comm); });
  }

  static constexpr int64_t kBatch = 12;
  std::unique_ptr<Worker> worker;
  data::DataOptions data;
  std::unique_ptr<data::Dataset> samples;
  std::unique_ptr<data::Loader> loader;
  std::optional<Engine> engine;
  ShardKeeper* keeper = nullptr;
};

using Model = std::vector<optim::NamedTensor>;

Model copied(const Model& model) {
  Model copy;
  for (const auto& [name, tensor] : model) copy.emplace_back(name, tensor.detach().clone());
  return copy;
}

double difference(const Model& a, const Model& b) {
  double largest = a.size() == b.size() && !a.empty() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, (a[i].second - b[i].second).abs().max().item<double>());
  return largest;
}

// What every rank holds after `steps`, by rank.
std::vector<Holdings> train(int ranks, const Setting& setting, int64_t steps, int64_t replicas = 1,
                            Model* result = nullptr) {
  std::vector<Holdings> held(static_cast<size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    Rank rank(comm, setting);
    rank.train(comm, steps, {}, replicas);
    held[static_cast<size_t>(comm.rank())] = rank.keeper->holdings();
    rank.worker->strategy->drain();
    Model whole = copied(whole_model(*rank.worker));
    if (result != nullptr && comm.rank() == 0) *result = whole;
  });
  return held;
}

// The ranks that are left, and `more` that have nothing, continue to `steps`.
Model continue_with(const std::vector<Holdings>& held, int more, const Setting& setting, int64_t steps) {
  Model result;
  comm::run_ranks(static_cast<int>(held.size()) + more, [&](comm::Communicator& comm) {
    const auto at = static_cast<size_t>(comm.rank());
    const Holdings own = at < held.size() ? held[at] : Holdings();
    Rank rank(comm, setting);
    const ShardChoice choice = agree_on_shards(own, comm);
    ASSERT_TRUE(choice.complete());
    const Progress progress = rank.restore(comm, own, choice);
    rank.train(comm, steps, progress, 1, 1);
    rank.worker->strategy->drain();
    Model whole = copied(whole_model(*rank.worker));
    if (comm.rank() == 0) result = whole;
  });
  return result;
}

std::vector<Holdings> without(std::vector<Holdings> held, size_t dead) {
  held.erase(held.begin() + static_cast<int64_t>(dead));
  return held;
}

TEST(ShardKeeper, ARunWithoutARankEqualsAnUndisturbedOne) {
  for (int64_t zero : {1, 2, 3})
    for (bool share : {true, false})
      for (const char* optimizer : {"adamw", "sgd"}) {
        const Setting setting{zero, optimizer, share};
        Model expected;
        train(3, setting, 6, 1, &expected);
        const std::vector<Holdings> held = train(3, setting, 3);
        for (size_t dead : {0, 1, 2})
          EXPECT_LT(difference(continue_with(without(held, dead), 0, setting, 6), expected), 1e-5)
              << "zero " << zero << ", without rank " << dead << ", " << optimizer;
      }
}

TEST(ShardKeeper, OneRankMayBeLeftAndOthersJoin) {
  for (int64_t zero : {1, 2, 3}) {
    const Setting setting{zero};
    Model expected;
    train(2, setting, 6, 1, &expected);
    const std::vector<Holdings> held = train(2, setting, 3);
    EXPECT_LT(difference(continue_with(without(held, 0), 0, setting, 6), expected), 1e-5) << zero;
    EXPECT_LT(difference(continue_with(held, 2, setting, 6), expected), 1e-5) << zero << ", two join";
  }
}

// Ranks that have not finished the update, and those that have, go back to the step that all have.
TEST(ShardKeeper, AnUpdateThatIsInterruptedIsTakenBack) {
  for (int64_t zero : {1, 3}) {
    const Setting setting{zero};
    Model expected;
    train(3, setting, 6, 1, &expected);
    std::vector<Holdings> held(3);
    comm::run_ranks(3, [&](comm::Communicator& comm) {
      Rank rank(comm, setting);
      rank.train(comm, 3, {});
      rank.keeper->before_update();
      torch::NoGradGuard no_grad;
      if (comm.rank() != 1)  // an update is half done
        for (const parallel::StatePiece& piece : rank.worker->strategy->state())
          if (piece.kind == parallel::StatePiece::Kind::kOptimizer) piece.values.fill_(77);
      held[static_cast<size_t>(comm.rank())] = rank.keeper->holdings();
      comm.barrier().wait();
    });
    EXPECT_LT(difference(continue_with(without(held, 1), 0, setting, 6), expected), 1e-5) << zero;
  }
}

constexpr Setting kStages = {.zero = 0, .stages = 3, .data = 1};
constexpr Setting kTwoReplicas = {.zero = 0, .stages = 2, .data = 2};

TEST(ShardKeeper, ASpareTakesTheStageOfALostRank) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    Setting setting = kStages;
    setting.optimizer = optimizer;
    Model expected;
    train(4, setting, 6, 1, &expected);
    const std::vector<Holdings> held = train(4, setting, 3);
    for (size_t dead : {0, 1, 2, 3})
      EXPECT_EQ(difference(continue_with(without(held, dead), 0, setting, 6), expected), 0)
          << "without rank " << dead << ", " << optimizer;
  }
}

TEST(ShardKeeper, WithoutASpareStagesAreCutAnew) {
  Model expected;
  train(3, kStages, 6, 1, &expected);
  const std::vector<Holdings> held = train(3, kStages, 3);
  for (size_t dead : {0, 1, 2})
    EXPECT_EQ(difference(continue_with(without(held, dead), 0, kStages, 6), expected), 0) << dead;
  EXPECT_EQ(difference(continue_with(without(held, 1), 2, kStages, 6), expected), 0) << "two join";
}

TEST(ShardKeeper, AStageWithTwoReplicasLosesOne) {
  Model expected;
  train(4, kTwoReplicas, 6, 1, &expected);
  const std::vector<Holdings> held = train(4, kTwoReplicas, 3);
  for (size_t dead : {0, 1, 2, 3})
    EXPECT_LT(difference(continue_with(without(held, dead), 0, kTwoReplicas, 6), expected), 1e-5) << dead;
  for (size_t first : {0, 2})  // both replicas of a stage
    EXPECT_LT(
        difference(continue_with(without(without(held, first + 1), first), 0, kTwoReplicas, 6), expected),
        1e-5)
        << first;
  const ShardChoice choice = choose_shards(nlohmann::json::array({describe(held[1])}));
  EXPECT_EQ(choice.lost, std::vector<int>{1});
  EXPECT_EQ(choice.kind, "stage");
}

TEST(ShardKeeper, WithoutCopiesAShardIsLost) {
  std::vector<Holdings> held = without(train(3, {2}, 3, /*replicas=*/0), 1);
  nlohmann::json all = {describe(held[0]), describe(held[1])};
  EXPECT_FALSE(choose_shards(all).complete());
  EXPECT_EQ(choose_shards(all).lost, std::vector<int>{1});
}

TEST(ShardKeeper, RanksThatLeaveGiveTheirShards) {
  Model expected;
  train(4, {1}, 6, 0, &expected);
  std::vector<Holdings> held(4);
  comm::run_ranks(4, [&](comm::Communicator& comm) {
    Rank rank(comm, {1});
    rank.train(comm, 3, {}, /*replicas=*/0);
    rank.worker->strategy->drain();
    rank.keeper->hand_over({false, true, true, false});  // two neighbours
    held[static_cast<size_t>(comm.rank())] = rank.keeper->holdings();
  });
  EXPECT_LT(difference(continue_with({held[0], held[3]}, 0, {1}, 6), expected), 1e-5);
}

TEST(ShardKeeper, CountsWhatCopiesCost) {
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    Rank rank(comm, {2});
    rank.train(comm, 4, {});
    // Half of the parameters, with two moments each, and of the lists a number per parameter.
    const int64_t shard = 3 * 4 * (784 * 19 + 19 + 19 * 10 + 10) / 2;
    EXPECT_NEAR(static_cast<double>(rank.keeper->copied_bytes()), static_cast<double>(5 * shard), 5 * 300);
    EXPECT_NEAR(static_cast<double>(rank.keeper->memory_bytes()), static_cast<double>(3 * shard), 3 * 300);
  });
}

TEST(ShardKeeper, AFaultWhileCopyingIsAnErrorOnAllRanks) {
  for (const char* point : {"elastic.copy"}) {
    fault::arm(fault::parse(std::string("hit=7,at=") + point + ":error"), {0, 0});
    EXPECT_THROW(train(3, {1}, 6), CommError) << point;
    fault::disarm();
  }
}

TEST(ShardKeeper, AFaultWhileRebuildingLeavesWhatRanksHold) {
  const Setting setting{3};
  Model expected;
  train(3, setting, 6, 1, &expected);
  const std::vector<Holdings> held = without(train(3, setting, 3), 1);
  fault::arm(fault::parse("hit=1,at=elastic.rebuild:error"), {0, 0});
  EXPECT_THROW(continue_with(held, 0, setting, 6), CommError);
  fault::disarm();
  EXPECT_LT(difference(continue_with(held, 0, setting, 6), expected), 1e-5);
}

}  // namespace
}  // namespace yoke::engine
