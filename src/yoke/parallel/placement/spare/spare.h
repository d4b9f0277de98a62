// Ranks that hold no part of the model, and wait to take the place of one that is lost (elastic pipelines).
//
// A spare takes part in what all ranks do together: it agrees on every step, learns whether its update was
// made, meets the others for checkpoints and evaluations, and may keep the copy of a neighbour's state. It
// computes nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/common/forwarding.h"
#include "yoke/parallel/holds_shard.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

// Of a rank that computes while others are spares.
class BesideSpares : public Forwarding {
 public:
  // `everyone`: ranks that compute, and spares; it must outlive the strategy. `device`: of the loss.
  BesideSpares(std::unique_ptr<Strategy> strategy, comm::Communicator& everyone, torch::Device device)
      : Forwarding(std::move(strategy)), everyone_(everyone), device_(device) {}

  StepNews agree(const StepNews& here) override;
  CommitResult commit(const CommitOptions& options) override;
  std::optional<std::string> first_non_finite_gradient() override;
  comm::Communicator* team() const override { return &everyone_; }
  RunEnd finish(int64_t peak_memory) override;

 private:
  comm::Communicator& everyone_;
  torch::Device device_;
};

// Of a spare.
class Spare : public Strategy, public HoldsShard {
 public:
  // `replicas`: of those that compute.
  Spare(comm::Communicator& everyone, int64_t replicas, torch::Device device)
      : everyone_(everyone), replicas_(replicas), device_(device) {}

  void acquire() override {}
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  CommitResult commit(const CommitOptions& options) override;
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override { return std::nullopt; }
  DataShare share() const override { return {.parts = replicas_, .reads = false, .together = true}; }
  comm::Communicator* team() const override { return &everyone_; }
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>&) override { return {}; }
  std::vector<StatePiece> state() override { return {}; }

  std::vector<StatePiece> shard() override { return {}; }
  ShardPlace place_of_shard() const override { return {.index = -1}; }

 private:
  comm::Communicator& everyone_;
  int64_t replicas_;
  torch::Device device_;
};

}  // namespace yoke::parallel
