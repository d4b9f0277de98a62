// Training on one CUDA device with the step recorded as CUDA graphs and replayed.
//
// The same numbers as OneDevice with almost no CPU work: one graph for the first micro-batch of a step, one
// for those that add to its gradients, one for the update. All batches must have the shapes of the first.
//
// With a loss scale (fp16) the device decides whether a step is skipped, and the host does not wait for it:
// commit() says whether the step before was, and loss_scale() is from then.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "yoke/compute/graph.h"
#include "yoke/optim/device_scaler.h"
#include "yoke/parallel/common/one_device.h"

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
  std::vector<StatePiece> state() override { return eager_.state(); }
  void restored(int64_t step) override;

 private:
  using Graph = std::unique_ptr<compute::DeviceGraph>;
  // Forward and backward of a micro-batch, and where their loss is.
  struct Pass {
    Graph graph;
    torch::Tensor loss;
  };
  // Runs `work` as it is in the first steps, later as the graph it was recorded to.
  void run(Graph& graph, const std::function<void()>& work);
  void fill(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target);
  void forward_and_backward(Pass& pass);
  void update();

  optim::GradScaler& host_scaler_;
  optim::GradScaler no_scaler_{{.enabled = false}};
  std::optional<optim::DeviceScaler> scaler_;
  models::Model model_;
  optim::Optimizer& optimizer_;
  OneDeviceOptions options_;
  OneDevice eager_;
  std::vector<torch::Tensor> parameters_;
  bool begins_ = true;  // the next batch is the first of its step
  double weight_ = 0;   // of every batch; 0: none yet
  // Static buffers that every batch is copied to.
  std::vector<torch::Tensor> inputs_;
  torch::Tensor target_;
  torch::Tensor unscaled_loss_;
  torch::Tensor weight_on_device_;
  Pass first_, next_;
  Graph update_graph_;
  const compute::DeviceGraph* last_recorded_ = nullptr;
  int64_t steps_ = 0;
  bool skipped_ = false;  // a step, and no commit() has said so
};

}  // namespace yoke::parallel
