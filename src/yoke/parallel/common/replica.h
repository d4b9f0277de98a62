// One of several replicas of a model in lockstep, each on its part of the batch: one-device training plus
// what all such replicas have in common. Derived classes define how the parameters are kept equal.
#pragma once

#include "yoke/parallel/common/one_device.h"

namespace yoke::parallel {

class Replica : public Strategy {
 public:
  // All arguments must outlive the strategy.
  Replica(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
          OneDeviceOptions options, comm::Communicator& comm);

  void acquire() override { device_.acquire(); }
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override {
    return device_.compute(inputs, target, micro);
  }
  // Averages the losses and shares stop signals over the replicas. Collective.
  StepNews agree(const StepNews& here) override;
  CommitResult commit(const CommitOptions& options) override { return device_.commit(options); }
  std::optional<std::string> first_non_finite_gradient() override {
    return device_.first_non_finite_gradient();
  }
  std::optional<double> loss_scale() const override { return device_.loss_scale(); }
  DataShare share() const override { return {.part = comm_.rank(), .parts = comm_.size()}; }
  comm::Communicator* team() const override { return &comm_; }
  Traffic traffic() const override { return {.data = comm_.counters().bytes_sent}; }
  // Barrier of all replicas.
  void begin(int64_t total_steps) override;
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override {
    return device_.forward(inputs);
  }
  bool exchange_average() override { return device_.exchange_average(); }
  std::vector<StatePiece> gradients() override;
  std::vector<StatePiece> state() override;

 protected:
  OneDevice& device() { return device_; }
  comm::Communicator& comm() { return comm_; }

 private:
  comm::Communicator& comm_;
  torch::Device where_;
  OneDevice device_;
};

}  // namespace yoke::parallel
