// One replica of a model on this rank's device: one-device training, with gradients averaged in backward.
#pragma once

#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/ddp/distributed_data_parallel.h"
#include "yoke/parallel/ddp/noise_scale.h"

namespace yoke::parallel {

class DdpStrategy : public Strategy {
 public:
  // Collective (DistributedDataParallel). All must outlive the strategy.
  DdpStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
              OneDeviceOptions options, comm::Communicator& comm, const DdpOptions& ddp);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  void share_buffers() override { ddp_.share_buffers(); }
  std::optional<Communication> communication() const override;
  std::optional<double> noise_scale() const override { return noise_.value(); }
  CommitResult commit(const CommitOptions& options) override { return device_.commit(options); }
  std::vector<torch::Tensor> gradients() override { return device_.gradients(); }
  std::optional<std::string> first_non_finite_gradient() override {
    return device_.first_non_finite_gradient();
  }
  std::optional<double> loss_scale() const override { return device_.loss_scale(); }

  DistributedDataParallel& ddp() { return ddp_; }

 protected:
  OneDevice& device() { return device_; }
  comm::Communicator& comm() { return comm_; }

 private:
  comm::Communicator& comm_;
  torch::Device where_;
  OneDevice device_;
  DistributedDataParallel ddp_;
  NoiseScale noise_;
  int64_t steps_ = 0;  // computed to their end
  bool measuring_ = false;
  double samples_ = 0;  // of this rank, in this step
};

}  // namespace yoke::parallel
