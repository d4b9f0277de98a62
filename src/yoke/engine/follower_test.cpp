#include "yoke/engine/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/engine/state_pieces.h"
#include "yoke/engine/synthetic_batches.h"

namespace yoke::engine {
namespace {

// Two ranks of three train; the last one follows.
constexpr int kFollower = 2;

WorkerOptions options_of(comm::Communicator& comm, const std::string& optimizer) {
  WorkerOptions options;
  options.model.name = "mlp";
  options.model.sizes = {784, 19, 10};
  options.optimizer.optimizer = optimizer;
  options.optimizer.lr = 0.01;
  options.optimizer.clip_norm = 0.5;
  options.compute.threads = 1;
  options.ddp.first_bucket_bytes = 1000;
  options.ddp.bucket_bytes = 8000;
  return on_ranks(options, comm);
}

void step(Worker& worker, int rank, int64_t number) {
  const data::Batch batch =
      synthetic_batches(worker, /*batch_size=*/4, static_cast<uint64_t>(10 * number + rank), /*count=*/1)[0];
  worker.strategy->acquire();
  parallel::MicroBatch micro;
  micro.weight = rank == kFollower ? 0 : 1.5;
  parallel::ComputeResult result = worker.strategy->compute(batch.inputs, batch.target, micro);
  EXPECT_TRUE(torch::isfinite(result.loss).all().item<bool>());
  worker.strategy->commit({0.01 / static_cast<double>(number), /*measure_norm=*/true});
}

void expect_equal_everywhere(Worker& worker, comm::Communicator& comm) {
  checkpoint::State state = state_here(worker);
  for (auto* list : {&state.model, &state.optimizer})
    for (const auto& [name, tensor] : *list) {
      torch::Tensor first = tensor.clone();
      comm::broadcast(comm, first, 0, name.substr(0, 40));
      EXPECT_TRUE(torch::equal(tensor, first)) << name << " on rank " << comm.rank();
    }
}

checkpoint::State copy_of(const checkpoint::State& state, bool values) {
  checkpoint::State copy = state;
  for (auto* list : {&copy.model, &copy.optimizer})
    for (auto& [name, tensor] : *list) tensor = values ? tensor.clone() : torch::zeros_like(tensor);
  return copy;
}

TEST(Follower, MakesUpForUpdatesOnceItHasTheState) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    comm::run_ranks(3, [&](comm::Communicator& comm) {
      const bool follows = comm.rank() == kFollower;
      auto worker = make_worker(options_of(comm, optimizer));
      for (int64_t number = 1; number <= 2; ++number) step(*worker, follows ? 0 : comm.rank(), number);
      torch::NoGradGuard no_grad;
      checkpoint::State state = copy_of(state_here(*worker), !follows);
      if (follows) restore_pieces(state, *worker, "zeros");
      auto group = comm.split(comm.rank() == 1 ? -1 : 0, comm.rank(), "state");
      std::unique_ptr<StateTransfer> transfer;
      Follower* follower = nullptr;
      torch::AutoGradMode grad(true);
      if (follows) {
        transfer = std::make_unique<StateTransfer>(std::move(group), state, nlohmann::json::object());
        auto made = std::make_unique<Follower>(std::move(worker->strategy), *worker, *transfer);
        follower = made.get();
        worker->strategy = std::move(made);
      }
      for (int64_t number = 3; number <= 5; ++number) step(*worker, comm.rank(), number);
      EXPECT_EQ(follows, follower != nullptr && follower->behind()) << "nobody has sent anything";
      comm.barrier().wait();
      if (comm.rank() == 0)
        transfer = std::make_unique<StateTransfer>(std::move(group), state, nlohmann::json::object());
      for (int64_t number = 6; number <= 7; ++number) step(*worker, comm.rank(), number);
      worker->strategy->drain();
      EXPECT_FALSE(follower != nullptr && follower->behind());
      expect_equal_everywhere(*worker, comm);
      step(*worker, comm.rank(), 8);
      expect_equal_everywhere(*worker, comm);
    });
  }
}

TEST(Follower, AFailedTransferIsAnErrorWhereTheStateIsNeeded) {
  std::string said;
  EXPECT_ANY_THROW(comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto worker = make_worker(options_of(comm, "sgd"));
    auto group = comm.split(0, comm.rank(), "state");
    if (comm.rank() == 0) throw CommError("lost");
    StateTransfer transfer(std::move(group), copy_of(state_here(*worker), false), nlohmann::json::object());
    Follower follower(std::move(worker->strategy), *worker, transfer);
    try {
      follower.drain();
    } catch (const CommError& error) {
      said = error.what();
    }
    EXPECT_TRUE(follower.behind());
  }));
  EXPECT_FALSE(said.empty());
}

}  // namespace
}  // namespace yoke::engine
