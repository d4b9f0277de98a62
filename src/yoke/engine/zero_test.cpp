// ZeRO equals data parallel, which equals one device; what each rank keeps; checkpoints that know no ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/checkpoint/pieces.h"
#include "yoke/checkpoint/tensors.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/engine/synthetic_batches.h"
#include "yoke/engine/verify.h"
#include "yoke/parallel/ddp/zero/sharded_state.h"

namespace yoke::engine {
namespace {

using ::testing::HasSubstr;

WorkerOptions small_mlp(const std::string& optimizer) {
  WorkerOptions options;
  options.model.name = "mlp";
  options.model.sizes = {784, 37, 10};
  options.optimizer.optimizer = optimizer;
  options.optimizer.lr = 0.05;
  options.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
  options.compute.threads = 1;
  options.batch_size = 12;
  options.ddp.first_bucket_bytes = 1000;
  options.ddp.bucket_bytes = 4000;
  return options;
}

struct Cut {
  int ranks = 2;
  int64_t zero = 1;
  int64_t accumulate = 1;
};

std::ostream& operator<<(std::ostream& out, const Cut& cut) {
  return out << cut.ranks << " ranks, zero " << cut.zero << ", accumulate " << cut.accumulate;
}

double largest_difference(const WorkerOptions& worker, const Cut& cut) {
  VerifyOptions options;
  options.alone = options.parallel = worker;
  options.ranks = cut.ranks;
  options.parallel.zero = cut.zero;
  options.parallel.accumulate = cut.accumulate;
  options.parallel.batch_size = worker.batch_size / cut.ranks / cut.accumulate;
  options.data.samples = 48;
  options.steps = 4;
  return verify(options).worst.largest();
}

TEST(Zero, EqualsOneDeviceWithEveryOptimizer) {
  for (const char* optimizer : {"sgd", "adamw", "adagrad"})
    for (const Cut& layout : {Cut{2, 1}, {3, 2}, {2, 1, 2}, {2, 2, 3}, {4, 2}})
      EXPECT_LT(largest_difference(small_mlp(optimizer), layout), 1e-10) << optimizer << " " << layout;
}

TEST(Zero, EqualsOneDeviceAlsoWithParametersOfItsOwn) {
  WorkerOptions options = small_mlp("adamw");
  options.ddp.share_parameters = false;
  for (const Cut& layout : {Cut{2, 1}, {3, 2}, {2, 2, 3}})
    EXPECT_LT(largest_difference(options, layout), 1e-10) << layout;
}

TEST(Zero, ClipsByTheNormOfAllRanks) {
  WorkerOptions options = small_mlp("sgd");
  options.optimizer.clip_norm = 0.01;
  EXPECT_LT(largest_difference(options, {3, 1}), 1e-10);
  EXPECT_LT(largest_difference(options, {3, 2}), 1e-10);
}

TEST(Zero, WorksWhereSomeRanksOwnNothing) {
  WorkerOptions options = small_mlp("adamw");
  options.model.sizes = {784, 1};
  options.ddp.bucket_bytes = 1'000'000;
  EXPECT_LT(largest_difference(options, {4, 2}), 1e-10);
}

TEST(Zero, RefusesWhatItCannotCut) {
  WorkerOptions options = small_mlp("lbfgs");
  EXPECT_THAT(
      [&] {
        largest_difference(options, {2, 1});
      },
      testing::ThrowsMessage<Error>(HasSubstr("train.optimizer = lbfgs")));
  options = small_mlp("sgd");
  options.ddp.hook = "int8";
  EXPECT_THAT(
      [&] {
        largest_difference(options, {2, 1});
      },
      testing::ThrowsMessage<Error>(HasSubstr("ddp.hook")));
}

int64_t bytes_of(const std::vector<optim::NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

TEST(Zero, ARankKeepsItsPartOfTheState) {
  int64_t whole = bytes_of(make_worker(small_mlp("adamw"))->optimizer->state());
  comm::run_ranks(4, [&](comm::Communicator& comm) {
    WorkerOptions own = small_mlp("adamw");
    own.replicas = &comm;
    own.zero = 1;
    auto worker = make_worker(own);
    EXPECT_NEAR(static_cast<double>(bytes_of(worker->optimizer->state())), static_cast<double>(whole) / 4,
                static_cast<double>(whole) * 0.01);
  });
}

void train(Worker& worker, int64_t steps, comm::Communicator& comm) {
  // Every rank has the same samples, so that their number does not show.
  auto batches = synthetic_batches(worker, 6, /*seed=*/7);
  for (int64_t step = 0; step < steps; ++step) {
    worker.strategy->acquire();
    const data::Batch& batch = batches[static_cast<size_t>(step) % batches.size()];
    worker.strategy->compute(batch.inputs, batch.target, {});
    worker.strategy->commit({0.01, false});
  }
  worker.strategy->drain();
  comm.barrier().wait();
}

TEST(Zero, ACheckpointGoesOnWithAnyNumberOfRanks) {
  std::vector<optim::NamedTensor> state, weights, expected;
  auto options = [](comm::Communicator& comm, int64_t zero) {
    WorkerOptions own = small_mlp("adamw");
    own.replicas = &comm;
    own.zero = zero;
    own.type = torch::kFloat64;
    return own;
  };
  auto copies = [](const std::vector<optim::NamedTensor>& list) {
    std::vector<optim::NamedTensor> all;
    for (const auto& [name, tensor] : list) all.emplace_back(name, tensor.detach().clone());
    return all;
  };
  auto parameters = [](const Worker& worker) {
    std::vector<optim::NamedTensor> all;
    for (const auto& item : worker.model.module->named_parameters())
      all.emplace_back(item.key(), item.value());
    return all;
  };
  std::vector<optim::NamedTensor> pieces;
  std::mutex mutex;
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto worker = make_worker(options(comm, 1));
    train(*worker, 3, comm);
    parallel::OwnedState owned = parallel::owned_state(*worker->shards, *worker->optimizer);
    {
      std::lock_guard lock(mutex);
      for (const auto& [name, piece, values] : owned.parts)
        pieces.emplace_back(checkpoint::piece_name(name, piece.begin, piece.end, false), values.clone());
      if (comm.rank() == 0) {
        for (const auto& whole : copies(owned.whole)) pieces.push_back(whole);
        weights = copies(parameters(*worker));
      }
    }
    train(*worker, 3, comm);
    if (comm.rank() == 0) expected = copies(parameters(*worker));
  });
  state = checkpoint::join_pieces(pieces, weights, "test");
  for (int64_t zero : {0, 1, 2}) {
    comm::run_ranks(3, [&](comm::Communicator& comm) {
      auto worker = make_worker(options(comm, zero));
      {
        torch::NoGradGuard no_grad;
        checkpoint::restore_into(weights, parameters(*worker), "test");
      }
      if (zero == 0)
        checkpoint::restore_into(state, worker->optimizer->state(), "test");
      else
        parallel::restore_pieces(state, *worker->shards, *worker->optimizer, "test");
      comm.barrier().wait();
      // The samples of the second half come first here: train() begins anew with the same batches.
      train(*worker, 3, comm);
      auto now = parameters(*worker);
      for (size_t i = 0; i < now.size(); ++i)
        EXPECT_TRUE(torch::allclose(now[i].second, expected[i].second, 0, 1e-12))
            << zero << " " << now[i].first;
    });
  }
}

// Where the parameters are in common, only gradients move.
TEST(Zero, MovesTheBytesOfAnAllReduceOrHalfOfThem) {
  comm::run_ranks(4, [&](comm::Communicator& comm) {
    for (auto [zero, common] : {std::pair(0, true), {1, false}, {2, false}, {1, true}, {2, true}}) {
      WorkerOptions own = small_mlp("sgd");
      own.model.sizes = {784, 40, 10};  // divides by four
      own.ddp.first_bucket_bytes = own.ddp.bucket_bytes = 1 << 30;
      own.replicas = &comm;
      own.zero = zero;
      own.ddp.share_parameters = common;
      auto worker = make_worker(own);
      train(*worker, 2, comm);
      int64_t before = comm.counters().bytes_sent;
      train(*worker, 1, comm);
      int64_t bytes = 4 * worker->model.parameter_count();
      EXPECT_NEAR(static_cast<double>(comm.counters().bytes_sent - before),
                  (zero > 0 && common ? 1 : 2) * 0.75 * static_cast<double>(bytes), 128)
          << zero << common;
    }
  });
}

TEST(Zero, ANanOfOneRankStopsAllOfThemWithTheSameName) {
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    for (int64_t zero : {0, 1, 2}) {
      WorkerOptions own = small_mlp("sgd");
      own.replicas = &comm;
      own.zero = zero;
      auto worker = make_worker(own);
      train(*worker, 2, comm);
      std::vector<torch::Tensor> before;
      for (const torch::Tensor& one : worker->model.module->parameters())
        before.push_back(one.detach().clone());
      data::Batch batch = synthetic_batches(*worker, 6, 7)[0];
      if (comm.rank() == 1) batch.inputs[0] = torch::full_like(batch.inputs[0], NAN);
      worker->strategy->acquire();
      worker->strategy->compute(batch.inputs, batch.target, {});
      EXPECT_FALSE(worker->strategy->commit({0.01, /*measure_norm=*/true}).updated) << zero;
      EXPECT_EQ(worker->strategy->first_non_finite_gradient().value_or("none"),
                worker->model.module->named_parameters().keys()[0])
          << zero;
      worker->strategy->drain();
      auto after = worker->model.module->parameters();
      for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(torch::equal(after[i], before[i])) << zero;
    }
  });
}

}  // namespace
}  // namespace yoke::engine
