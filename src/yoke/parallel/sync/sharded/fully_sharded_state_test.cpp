// State that knows nothing of ranks.
#include <gtest/gtest.h>

#include <map>

#include "yoke/parallel/sync/sharded/sharded_runs_for_tests.h"

namespace yoke::parallel::sharded_testing {
namespace {

// Whole tensors by name: parameters, then the optimizer's state.
using Saved = std::map<std::string, torch::Tensor>;

void merge(const std::vector<StatePiece>& state, Saved& into) {
  for (const StatePiece& piece : state) {
    torch::Tensor& whole = into[piece.name];
    if (!whole.defined()) whole = torch::zeros(piece.shape, piece.values.options());
    if (piece.is_list())
      whole.index_copy_(0, torch::tensor(piece.places, torch::kInt64), piece.values);
    else
      checkpoint::put(whole, piece, piece.values);
  }
}

void restore(const Saved& from, const std::vector<StatePiece>& state) {
  torch::NoGradGuard no_grad;
  for (const StatePiece& piece : state) {
    const torch::Tensor& whole = from.at(piece.name);
    piece.values.copy_(piece.is_list() ? whole.index_select(0, torch::tensor(piece.places, torch::kInt64))
                                       : checkpoint::cut(whole, piece));
  }
}

NamedTensors resume(const Layout& run, int first, int last, const Saved* from, Saved* to) {
  NamedTensors result;
  std::mutex merging;
  comm::run_ranks(run.ranks, [&](comm::Communicator& comm) {
    models::Model model = build(run);
    FullyShard shard(model, comm, run.shard);
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.enabled = false});
    FullyShardedStrategy strategy(model, *optimizer, scaler, {}, shard);
    if (from != nullptr) restore(*from, strategy.state());
    for (int step = first; step < last; ++step) take_step(strategy, model, run, step, comm.rank(), run.ranks);
    NamedTensors whole = shard.full_parameters();
    std::unique_lock lock(merging);
    if (comm.rank() == 0) result = whole;
    if (to != nullptr) merge(strategy.state(), *to);
  });
  return result;
}

TEST(FullyShardedState, StateOfOneLayoutResumesInAnother) {
  for (const models::ModelOptions& model : {mlp(), gpt2()}) {
    NamedTensors expected = alone({model});
    Saved saved;
    resume({model, 4, gathering()}, 0, 4, nullptr, &saved);
    EXPECT_LT(difference(resume({model, 3}, 4, kSteps, &saved, nullptr), expected), 1e-10);
    EXPECT_LT(difference(resume({model, 1}, 4, kSteps, &saved, nullptr), expected), 1e-10);
  }
}

}  // namespace
}  // namespace yoke::parallel::sharded_testing
