// Training on one CUDA device with the step recorded as CUDA graphs and replayed.
//
// The same numbers as OneDevice with almost no CPU work. All batches must have the shapes of the first; no
// gradient accumulation.
#pragma once

#include <functional>
#include <memory>

#include "yoke/compute/graph.h"
#include "yoke/parallel/common/one_device.h"

namespace yoke::parallel {

class GraphedDevice : public Strategy {
 public:
  // All arguments must outlive the strategy.
  GraphedDevice(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                OneDeviceOptions options);

  void acquire() override {}
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override;
  std::vector<StatePiece> gradients() override { return eager_.gradients(); }
  std::optional<std::string> first_non_finite_gradient() override {
    return eager_.first_non_finite_gradient();
  }
  std::optional<double> loss_scale() const override { return std::nullopt; }
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override {
    return eager_.forward(inputs);
  }
  std::vector<StatePiece> state() override { return eager_.state(); }

 private:
  void fill(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target);
  void forward_and_backward();
  void update();

  optim::Optimizer& optimizer_;
  OneDeviceOptions options_;
  OneDevice eager_;
  std::vector<torch::Tensor> parameters_;
  // Static buffers that every batch is copied to, and that receive loss and norm.
  std::vector<torch::Tensor> inputs_;
  torch::Tensor target_;
  torch::Tensor loss_;
  torch::Tensor norm_;
  std::unique_ptr<compute::DeviceGraph> gradient_graph_;
  std::unique_ptr<compute::DeviceGraph> update_graph_;
  int64_t steps_ = 0;
};

}  // namespace yoke::parallel
