// What schedules without a flush compute, step by step in one process, from the formula of their staleness.
//
// With n stages and minibatches b = 0, 1, … forward and backward of stage s (from 0) use its weights after
//   pipedream                 max(0, b - (n - 1 - s)) updates
//   with vertical sync        max(0, b - (n - 1))
//   2bw                       max(0, b - 1)
// and the gradient is applied to the newest weights (Harlap et al. 2018; Narayanan et al. 2021), clipped by
// the global norm if available in time (late_updates.h), else by the stage's own norm. A micro-batch of
// pipedream is a minibatch of its own. For tests and `yoke verify`: slow, and shares no version handling with
// the runtime.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "yoke/optim/optimizer.h"
#include "yoke/parallel/placement/stage/ownership.h"
#include "yoke/parallel/schedule/pipeline/stage_runner.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

class StaleReplay : public Replay {
 public:
  // The model must outlive it; its parameters are used as scratch. Without `stash` the backward pass uses the
  // newest weights instead of those of the forward, the error PipeDream avoids.
  StaleReplay(const models::Model& model, const PipelineLayout& layout,
              const optim::OptimizerOptions& optimizer, bool stash = true);

  // One batch, divided into the layout's micro-batches like in the runtime. Returns its mean loss.
  double step(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target, double lr) override;

  // The newest weights, by name.
  std::vector<optim::NamedTensor> weights() const override;

 private:
  using Tensors = std::vector<torch::Tensor>;
  struct Stage {
    std::vector<optim::NamedTensor> parameters;  // of the model
    std::vector<optim::NamedTensor> newest;
    std::vector<std::vector<int>> holders;  // stages that hold each parameter
    std::map<int, Tensors> history;         // by version
    std::unique_ptr<optim::Optimizer> optimizer;
    std::unique_ptr<StageRunner> runner;
    Tensors in_use;
  };
  int version_for(int stage, int minibatch) const;
  void load(Stage& stage, int version);
  double forward(int micro, int minibatch, Tensors inputs, const torch::Tensor& target, double weight);
  void backward(int micro);
  void update(double lr);
  void clip_whole();
  void clip_each(Stage& stage) const;

  PipelineLayout layout_;
  double clip_norm_;
  bool stash_;
  optim::GradScaler scaler_;
  std::vector<Stage> stages_;
  int micro_ = 0;
  int updates_ = 0;
};

}  // namespace yoke::parallel
