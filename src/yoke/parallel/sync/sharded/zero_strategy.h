// Data parallel with the optimizer's state (stage 1) and the gradients (stage 2) spread over the ranks.
//
// Gradients are reduced so that each rank gets the average of what it owns, it moves that, and the new values
// go round while the next forward runs: a block waits for its own parameters only. The bytes are those of
// all_reduce. Stage 2 also lets go of a gradient as soon as its bucket has been reduced, also between
// micro-batches: of all gradients a rank holds its part, what backward() has made of one bucket, and windows
// of a tenth of them at most.
#pragma once

#include "yoke/parallel/common/ddp/ddp_strategy.h"
#include "yoke/parallel/holds_shard.h"
#include "yoke/parallel/sync/sharded/owned_gradients.h"
#include "yoke/parallel/sync/sharded/shard_hook.h"
#include "yoke/parallel/sync/sharded/shards.h"

namespace yoke::parallel {

class ZeroStrategy : public DdpStrategy, public HoldsShard {
 public:
  // Collective. `optimizer` is of shards.owned(). `stage`: 1 or 2. Throws ConfigError for what cannot be cut.
  // A world of one is a world.
  ZeroStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
               OneDeviceOptions options, comm::Communicator& comm, const DdpOptions& ddp, Shards& shards,
               int64_t stage);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override;
  void drain() override { shards_.wait_for_all(); }
  std::vector<StatePiece> gradients() override;
  bool exchange_average() override;
  std::vector<StatePiece> state() override;
  std::vector<StatePiece> shard() override;
  ShardPlace place_of_shard() const override { return {team()->rank(), team()->size(), "rank"}; }
  std::optional<std::string> first_non_finite_gradient() override;

 private:
  torch::Tensor own_gradient(const Piece& piece) const;
  void take_gradients();

  optim::Optimizer& optimizer_;
  Shards& shards_;
  std::shared_ptr<ShardHook> hook_;
  OwnedGradients owned_;
  bool keeps_no_gradients_;  // stage 2
};

}  // namespace yoke::parallel
