// One replica per rank: one-device training, with gradients averaged during backward.
#pragma once

#include "yoke/parallel/common/ddp/distributed_data_parallel.h"
#include "yoke/parallel/common/ddp/noise_scale.h"
#include "yoke/parallel/common/replica.h"

namespace yoke::parallel {

class DdpStrategy : public Replica {
 public:
  // Collective (DistributedDataParallel). All arguments must outlive the strategy.
  DdpStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
              OneDeviceOptions options, comm::Communicator& comm, const DdpOptions& ddp);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  void share_buffers() override { ddp_.share_buffers(); }
  std::optional<Communication> communication() const override;
  std::optional<double> noise_scale() const override { return noise_.value(); }

  DistributedDataParallel& ddp() { return ddp_; }

 protected:
  // For a compute() of a derived class: a batch was read; the last one's gradients are combined.
  void count_batch(const torch::Tensor& target);
  void count_step() { ++steps_; }

 private:
  DistributedDataParallel ddp_;
  NoiseScale noise_;
  const bool holds_whole_;  // else gradient norms are those of this rank's slices, and no noise is measured
  int64_t steps_ = 0;       // completed
  bool measuring_ = false;
  double samples_ = 0;  // of this rank in this step
};

}  // namespace yoke::parallel
