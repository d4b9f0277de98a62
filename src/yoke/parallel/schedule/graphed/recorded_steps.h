// The parts of training steps, recorded as CUDA graphs and replayed.
//
// One graph for the first micro-batch of a step, one for those that add to its gradients, one for the update.
// In the first steps the work runs as it is, because libraries select algorithms and allocate workspaces
// then. A batch whose shapes or weight differ from those before starts anew: warm-up, then a new recording.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "yoke/compute/graph.h"
#include "yoke/parallel/common/one_device.h"

namespace yoke::parallel {

// One thread.
class RecordedSteps {
 public:
  explicit RecordedSteps(const OneDeviceOptions& options) : device_(options.device), place_(options.place) {}

  // Copies a batch to the tensors that recorded work reads. `weight`: of its gradient, a constant of the
  // work.
  void fill(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target, double weight);
  const std::vector<torch::Tensor>& inputs() const { return inputs_; }
  const torch::Tensor& target() const { return target_; }

  // Runs `work`, forward and backward of the batch, and returns a copy of the loss it returned. `first`: of
  // the step.
  torch::Tensor pass(bool first, const std::function<torch::Tensor()>& work);
  // Runs `work`, which changes the parameters.
  void update(const std::function<void()>& work);
  // Call it at the end of every step.
  void end_step() { ++steps_; }

 private:
  using Graph = std::unique_ptr<compute::DeviceGraph>;
  struct Pass {
    Graph graph;
    torch::Tensor loss;
  };
  bool fits(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target, double weight) const;
  void run(Graph& graph, const std::function<void()>& work);

  torch::Device device_;
  std::function<torch::Tensor(const torch::Tensor&)> place_;
  std::vector<torch::Tensor> inputs_;
  torch::Tensor target_;
  Pass first_, next_;
  Graph update_;
  const compute::DeviceGraph* last_recorded_ = nullptr;
  double weight_ = 0;
  int64_t steps_ = 0;  // with these shapes
};

}  // namespace yoke::parallel
