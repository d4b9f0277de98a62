// Training on one CUDA device with the step recorded as CUDA graphs and replayed.
//
// The same numbers as OneDevice, with next to no work for the processor. Batches must all have the shapes of
// the first; gradients are not accumulated over micro-batches.
#pragma once

#include <functional>
#include <memory>

#include "yoke/compute/graph.h"
#include "yoke/parallel/common/one_device.h"

namespace yoke::parallel {

class GraphedDevice : public Strategy {
 public:
  // All must outlive the strategy.
  GraphedDevice(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                OneDeviceOptions options);

  void acquire() override {}
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override;
  std::vector<torch::Tensor> gradients() override { return eager_.gradients(); }
  std::optional<std::string> first_non_finite_gradient() override {
    return eager_.first_non_finite_gradient();
  }
  std::optional<double> loss_scale() const override { return std::nullopt; }

 private:
  void fill(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target);
  void forward_and_backward();
  void update();

  optim::Optimizer& optimizer_;
  OneDeviceOptions options_;
  OneDevice eager_;
  std::vector<torch::Tensor> parameters_;
  // Where every batch is copied to, and where the step leaves its loss and norm.
  std::vector<torch::Tensor> inputs_;
  torch::Tensor target_;
  torch::Tensor loss_;
  torch::Tensor norm_;
  std::unique_ptr<compute::DeviceGraph> gradient_graph_;
  std::unique_ptr<compute::DeviceGraph> update_graph_;
  int64_t steps_ = 0;
};

}  // namespace yoke::parallel
