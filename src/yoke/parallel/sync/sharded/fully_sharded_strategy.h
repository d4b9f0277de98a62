// Data parallel with parameters, gradients and the optimizer's state sharded over the ranks (ZeRO stage 3).
//
// Blocks of the model gather their parameters before use and release them after, in forward and in backward;
// each rank keeps its part of the averaged gradients, also between micro-batches, and updates what it owns.
#pragma once

#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/holds_shard.h"
#include "yoke/parallel/placement/sharded/fully_shard.h"
#include "yoke/parallel/sync/sharded/owned_gradients.h"

namespace yoke::parallel {

class FullyShardedStrategy : public Strategy, public HoldsShard {
 public:
  // `fully` is of `model`, `optimizer` of fully.named_parameters(). All must outlive the strategy.
  FullyShardedStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                       OneDeviceOptions options, FullyShard& fully);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  void share_buffers() override;
  std::optional<Communication> communication() const override { return communication_; }
  CommitResult commit(const CommitOptions& options) override { return gradients_.commit(options); }
  std::vector<StatePiece> gradients() override { return gradients_.pieces(); }
  // Every rank calls forward() equally often: it gathers.
  DataShare share() const override {
    return {.part = fully_.comm().rank(), .parts = fully_.comm().size(), .together = true};
  }
  comm::Communicator* team() const override { return &fully_.comm(); }
  Traffic traffic() const override { return {.data = fully_.comm().counters().bytes_sent}; }
  void begin(int64_t total_steps) override;
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override;
  bool exchange_average() override;
  std::vector<StatePiece> state() override;
  std::vector<StatePiece> shard() override;
  ShardPlace place_of_shard() const override { return {team()->rank(), team()->size(), "rank"}; }
  std::optional<std::string> first_non_finite_gradient() override { return gradients_.first_non_finite(); }
  std::optional<double> loss_scale() const override { return device_.loss_scale(); }

  // The model with blocks that gather: for evaluation, on all ranks alike or under fully.hold().
  const models::Model& model() const { return model_; }

 private:
  FullyShard& fully_;
  models::Model model_;
  torch::Device where_;
  OneDevice device_;
  optim::Optimizer& optimizer_;
  OwnedGradients gradients_;
  int64_t computed_ = 0;  // micro-batches of this step
  Communication communication_;
};

}  // namespace yoke::parallel
