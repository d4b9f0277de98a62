// Training on one device: what every parallel strategy must equal.
#pragma once

#include <functional>

#include "yoke/compute/precision.h"
#include "yoke/compute/recompute.h"
#include "yoke/models/model.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

struct OneDeviceOptions {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;    // of autocast; kFp32 where the weights themselves are narrow
  double clip_norm = 0;                      // 0: no clipping
  std::vector<compute::Segment> segments;    // which blocks are computed again in backward; empty: none
  std::function<void(size_t)> before_block;  // called with the block's number before it runs forward
  bool keep_batches = false;                 // for optimizers that evaluate the loss again (L-BFGS)
  // For these, with replicas: the mean of all replicas' losses, and one replica's number for all. Collective.
  std::function<torch::Tensor(const torch::Tensor&)> mean_over_replicas, same_on_replicas;
  // Brings an input to the device, in the format the model's weights have.
  std::function<torch::Tensor(const torch::Tensor&)> place = [](const torch::Tensor& input) { return input; };
};

class OneDevice : public Strategy {
 public:
  // All three must outlive the strategy. The model is on the device already.
  OneDevice(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
            OneDeviceOptions options);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override;
  std::vector<torch::Tensor> gradients() override;
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override;

 private:
  struct KeptBatch {
    std::vector<torch::Tensor> inputs;
    torch::Tensor target;
    double weight;
  };
  torch::Tensor forward_loss(const KeptBatch& batch);
  torch::Tensor evaluate_again();

  const models::Model& model_;
  optim::Optimizer& optimizer_;
  optim::GradScaler& scaler_;
  OneDeviceOptions options_;
  std::vector<optim::NamedTensor> named_parameters_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> batch_counters_;
  std::vector<RecomputeFunction> blocks_;
  std::vector<KeptBatch> step_batches_;
};

}  // namespace yoke::parallel
