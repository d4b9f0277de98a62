// Training on one device: the reference for every parallel strategy.
#pragma once

#include <functional>

#include "yoke/compute/precision.h"
#include "yoke/compute/recompute.h"
#include "yoke/models/model.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/common/global_norm.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

struct OneDeviceOptions {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;    // of autocast; kFp32 if the weights themselves are narrow
  double clip_norm = 0;                      // 0: no clipping
  std::vector<compute::Segment> segments;    // blocks recomputed in backward; empty: none
  std::function<void(size_t)> before_block;  // called with the block's index before its forward
  SliceAxis slices;                          // if parameters are slices of the model's
  bool keep_batches = false;                 // for optimizers that reevaluate the loss (L-BFGS)
  // For these, with replicas: mean of all replicas' losses, and one replica's value for all. Collective.
  std::function<torch::Tensor(const torch::Tensor&)> mean_over_replicas, same_on_replicas;
  // Copies an input to the device, in the memory format of the model's weights.
  std::function<torch::Tensor(const torch::Tensor&)> place = [](const torch::Tensor& input) { return input; };
};

class OneDevice : public Strategy {
 public:
  // All arguments must outlive the strategy. The model is already on the device.
  OneDevice(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
            OneDeviceOptions options);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override;
  std::vector<StatePiece> gradients() override { return whole_gradients(named_parameters_); }
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override;
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override;
  bool exchange_average() override;
  std::vector<StatePiece> state() override;

 private:
  // A batch of the current step, for reevaluation.
  struct KeptBatch {
    std::vector<torch::Tensor> inputs;
    torch::Tensor target;
    double weight;
  };
  torch::Tensor forward_loss(const KeptBatch& batch);
  torch::Tensor evaluate_again();
  // Clips by the norm over all slices; returns that norm.
  torch::Tensor clip_whole_norm();

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
