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
#include "yoke/compute/memory_meter.h"
#include "yoke/engine/state_pieces.h"
#include "yoke/engine/synthetic_batches.h"
#include "yoke/engine/verify.h"
#include "yoke/parallel/sync/sharded/sharded_state.h"
#include "yoke/parallel/sync/sharded/zero_strategy.h"

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
  options.parallel.parallel.zero = cut.zero;
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
      testing::ThrowsMessage<Error>(HasSubstr("train.optimizer = \"lbfgs\"")));
  options = small_mlp("sgd");
  options.ddp.hook = "int8";
  EXPECT_THAT(
      [&] {
        largest_difference(options, {2, 2});
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
    own = on_ranks(own, comm);
    own.parallel.zero = 1;
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
  std::vector<optim::NamedTensor> expected;
  auto options = [](comm::Communicator& comm, int64_t zero) {
    WorkerOptions own = small_mlp("adamw");
    own = on_ranks(own, comm);
    own.parallel.zero = zero;
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
  checkpoint::State saved;
  std::mutex mutex;
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto worker = make_worker(options(comm, 1));
    train(*worker, 3, comm);
    checkpoint::State part = part_to_save(*worker);
    {
      std::lock_guard lock(mutex);
      for (const auto& one : copies(part.model)) saved.model.push_back(one);
      for (const auto& one : copies(part.optimizer)) saved.optimizer.push_back(one);
    }
    train(*worker, 3, comm);
    if (comm.rank() == 0) expected = copies(parameters(*worker));
  });
  saved.optimizer = checkpoint::join_pieces(saved.optimizer, {}, "test");
  for (int64_t zero : {0, 1, 2}) {
    comm::run_ranks(3, [&](comm::Communicator& comm) {
      auto worker = make_worker(options(comm, zero));
      restore_pieces(saved, *worker, "test");
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
      own = on_ranks(own, comm);
      own.parallel.zero = zero;
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

// Forwards, and counts what is allocated for data that moves.
class CountingCommunicator final : public comm::Communicator {
 public:
  explicit CountingCommunicator(comm::Communicator& to) : to_(to) {}
  int64_t allocated = 0;

  int rank() const override { return to_.rank(); }
  int size() const override { return to_.size(); }
  const std::string& name() const override { return to_.name(); }
  const std::string& backend() const override { return to_.backend(); }
  using Buffer = comm::Buffer;
  using ConstBuffer = comm::ConstBuffer;
  using Options = comm::OpOptions;
  comm::Pending all_reduce(Buffer data, ReduceOp op, const Options& o) override {
    return to_.all_reduce(data, op, o);
  }
  comm::Pending reduce(Buffer data, int root, ReduceOp op, const Options& o) override {
    return to_.reduce(data, root, op, o);
  }
  comm::Pending reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, const Options& o) override {
    return to_.reduce_scatter(in, out, op, o);
  }
  comm::Pending all_gather(ConstBuffer in, Buffer out, std::span<const int64_t> counts,
                           const Options& o) override {
    return to_.all_gather(in, out, counts, o);
  }
  comm::Pending all_to_all(ConstBuffer in, Buffer out, const Options& o) override {
    return to_.all_to_all(in, out, o);
  }
  comm::Pending broadcast(Buffer data, int root, const Options& o) override {
    return to_.broadcast(data, root, o);
  }
  comm::Pending gather(ConstBuffer in, Buffer out, int root, const Options& o) override {
    return to_.gather(in, out, root, o);
  }
  comm::Pending scatter(ConstBuffer in, Buffer out, int root, const Options& o) override {
    return to_.scatter(in, out, root, o);
  }
  comm::Pending send(ConstBuffer data, int peer, int tag, const Options& o) override {
    return to_.send(data, peer, tag, o);
  }
  comm::Pending receive(Buffer data, int peer, int tag, const Options& o) override {
    return to_.receive(data, peer, tag, o);
  }
  comm::Pending barrier(const Options& o) override { return to_.barrier(o); }
  std::unique_ptr<comm::Communicator> split(int color, int key, const std::string& group) override {
    return to_.split(color, key, group);
  }
  comm::Memory allocate(size_t bytes) override {
    allocated += static_cast<int64_t>(bytes);
    return to_.allocate(bytes);
  }
  comm::Memory allocate_common(size_t bytes) override { return to_.allocate_common(bytes); }
  comm::Counters counters() const override { return to_.counters(); }
  void abandon(const std::string& reason) noexcept override { to_.abandon(reason); }

 private:
  comm::Communicator& to_;
};

struct Memory {
  int64_t first = 0, later = 0;  // most bytes in a step: the first two, those after them
};

Memory memory_of_stage(int64_t zero, int ranks) {
  Memory most;
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    CountingCommunicator counting(comm);
    WorkerOptions own = small_mlp("sgd");
    own.model.sizes = {784, 400, 400, 400, 400, 10};
    own.optimizer.momentum = 0;
    own.ddp.first_bucket_bytes = own.ddp.bucket_bytes = 500'000;
    own = on_ranks(own, counting);
    own.parallel.zero = zero;
    auto worker = make_worker(own);
    compute::MemoryMeter meter;
    train(*worker, 2, comm);
    Memory here{meter.peak_bytes() + counting.allocated, 0};
    meter.reset_peak();
    train(*worker, 2, comm);
    here.later = meter.peak_bytes() + counting.allocated;
    if (comm.rank() == 0) most = here;
  });
  return most;
}

TEST(Zero, EachStageNeedsLessMemoryThanTheOneBefore) {
  Memory none = memory_of_stage(0, 4), one = memory_of_stage(1, 4), two = memory_of_stage(2, 4);
  EXPECT_LT(one.first, none.first * 2 / 3);
  EXPECT_LT(two.first, one.first);
  EXPECT_LT(two.later, one.later);
}

TEST(Zero, AWorldOfOneTrainsAsOneDevice) {
  for (int64_t stage : {1, 2}) {
    comm::run_ranks(1, [&](comm::Communicator& comm) {
      auto alone = make_worker(small_mlp("adamw")), parts = make_worker(small_mlp("adamw"));
      parallel::Shards shards(*parts->model.module, comm, DdpOptions{});
      parts->optimizer = optim::make(small_mlp("adamw").optimizer, shards.owned());
      parts->strategy = std::make_unique<parallel::ZeroStrategy>(parts->model, *parts->optimizer,
                                                                 parts->scaler, parallel::OneDeviceOptions{},
                                                                 comm, DdpOptions{}, shards, stage);
      train(*alone, 3, comm);
      train(*parts, 3, comm);
      EXPECT_FALSE(parts->strategy->first_non_finite_gradient());
      EXPECT_EQ(parts->strategy->gradients().size(), 4u);
      auto expected = alone->model.module->parameters(), got = parts->model.module->parameters();
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::allclose(got[i], expected[i], 0, 1e-6));
      parts->strategy.reset();  // stands on the shards
    });
  }
}

TEST(Zero, AStepWithoutABackwardMovesNothing) {
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    for (int64_t zero : {1, 2}) {
      WorkerOptions own = small_mlp("sgd");
      own = on_ranks(own, comm);
      own.parallel.zero = zero;
      auto worker = make_worker(own);
      torch::Tensor before = worker->model.module->parameters()[0].detach().clone();
      worker->strategy->acquire();
      for (const auto& one : worker->strategy->gradients()) EXPECT_FALSE(one.values.defined());
      EXPECT_TRUE(worker->strategy->commit({0.1, true}).updated);
      worker->strategy->drain();
      EXPECT_TRUE(worker->model.module->parameters()[0].equal(before));
      comm.barrier().wait();
    }
  });
}

TEST(Zero, RefusesAStageThatThereIsNot) {
  comm::run_ranks(1, [&](comm::Communicator& comm) {
    auto worker = make_worker(small_mlp("sgd"));
    parallel::Shards shards(*worker->model.module, comm, DdpOptions{});
    EXPECT_THROW(parallel::ZeroStrategy(worker->model, *worker->optimizer, worker->scaler, {}, comm,
                                        DdpOptions{}, shards, 3),
                 ConfigError);
  });
}

// Rank 1 runs out of memory behind its last gradient, and takes the step again.
TEST(Zero, AStepThatFailedBeforeAnythingWasSentMayBeRepeated) {
  std::vector<torch::Tensor> expected;
  WorkerOptions alone = small_mlp("sgd");
  alone.type = torch::kFloat64;
  auto weights = make_worker(alone);  // ranks that are threads share one generator
  for (bool fails : {false, true}) {
    for (int64_t zero : {0, 1, 2}) {
      comm::run_ranks(2, [&](comm::Communicator& comm) {
        WorkerOptions own = alone;
        own.ddp.first_bucket_bytes = own.ddp.bucket_bytes = 1 << 30;
        own = on_ranks(own, comm);
        own.parallel.zero = zero;
        auto worker = make_worker(own);
        {
          torch::NoGradGuard no_grad;
          auto to = worker->model.module->parameters(), from = weights->model.module->parameters();
          for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
        }
        comm.barrier().wait();
        for (int64_t step = 0; step < 4; ++step) {
          data::Batch batch = synthetic_batches(*worker, 6, static_cast<uint64_t>(comm.rank() + 1))[0];
          if (fails && comm.rank() == 1 && step % 2 == 1) {
            torch::Tensor bad = batch.inputs[0].to(torch::kFloat64, false, /*copy=*/true).requires_grad_();
            bad.register_hook([](const torch::Tensor&) -> torch::Tensor { throw ConfigError("no memory"); });
            worker->strategy->acquire();
            EXPECT_THROW(worker->strategy->compute({bad}, batch.target, {}), std::exception);
          }
          worker->strategy->acquire();
          worker->strategy->compute(batch.inputs, batch.target, {});
          worker->strategy->commit({0.05, false});
        }
        worker->strategy->drain();
        std::vector<torch::Tensor> now;
        for (const torch::Tensor& one : worker->model.module->parameters())
          now.push_back(one.detach().clone());
        comm.barrier().wait();
        if (!fails && zero == 0 && comm.rank() == 0) expected = now;
        comm.barrier().wait();
        for (size_t i = 0; i < now.size(); ++i)
          EXPECT_LT((now[i] - expected[i]).abs().max().item<double>(), 1e-12) << zero << fails;
        comm.barrier().wait();
      });
    }
  }
}

TEST(Zero, ANanOfOneRankStopsAllOfThemWithTheSameName) {
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    for (int64_t zero : {0, 1, 2}) {
      WorkerOptions own = small_mlp("sgd");
      own = on_ranks(own, comm);
      own.parallel.zero = zero;
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
