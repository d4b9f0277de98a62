// Training on one CUDA device with the step recorded as CUDA graphs and replayed.
//
// The same numbers as OneDevice with almost no CPU work (recorded_steps.h). All batches have the same weight.
//
// With a loss scale (fp16) the device decides whether a step is skipped, and the host does not wait for it:
// commit() says whether the step before was, and loss_scale() is from then.
#pragma once

#include <optional>

#include "yoke/optim/device_scaler.h"
#include "yoke/parallel/schedule/graphed/recorded_steps.h"

namespace yoke::parallel {

class GraphedDevice : public Strategy {
 public:
  // All arguments must outlive the strategy. `scales`: losses are scaled; requires
  // optim::can_follow_scaled_update.
  GraphedDevice(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                OneDeviceOptions options, bool scales);

  void acquire() override { begins_ = true; }
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override;
  void drain() override;
  std::vector<StatePiece> gradients() override { return eager_.gradients(); }
  std::optional<std::string> first_non_finite_gradient() override {
    return eager_.first_non_finite_gradient();
  }
  std::optional<double> loss_scale() const override;
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override {
    return eager_.forward(inputs);
  }
  bool exchange_average() override { return eager_.exchange_average(); }
  std::vector<StatePiece> state() override { return eager_.state(); }
  void restored(int64_t step) override;

 private:
  // Forward and backward of a micro-batch. Returns its loss.
  torch::Tensor forward_and_backward(bool first);
  void update();

  optim::GradScaler& host_scaler_;
  optim::GradScaler no_scaler_{{.enabled = false}};
  std::optional<optim::DeviceScaler> scaler_;
  models::Model model_;
  optim::Optimizer& optimizer_;
  OneDeviceOptions options_;
  OneDevice eager_;
  RecordedSteps recorded_;
  std::vector<torch::Tensor> parameters_;
  bool begins_ = true;  // the next batch is the first of its step
  double weight_ = 0;   // of every batch; 0: none yet
  torch::Tensor unscaled_loss_;
  torch::Tensor weight_on_device_;
  bool skipped_ = false;  // a step, and no commit() has said so
};

}  // namespace yoke::parallel
