// Forward and backward of this rank's blocks, micro-batch by micro-batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "yoke/compute/deferred_gradients.h"
#include "yoke/compute/precision.h"
#include "yoke/compute/recompute.h"
#include "yoke/models/model.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/parallel/placement/stage/layout.h"

namespace yoke::parallel {

struct StageRunnerOptions {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;  // of autocast
  std::vector<compute::Segment> segments;  // of the whole model: which blocks are recomputed
  std::function<void()> after_weights;     // called at the end of weight(); may be empty
};

class StageRunner {
 public:
  using Tensors = std::vector<torch::Tensor>;

  // All arguments must outlive it.
  StageRunner(const models::Model& model, const optim::GradScaler& scaler, const PipelineLayout& layout,
              int stage, StageRunnerOptions options);

  bool is_first(int chunk) const { return chunk == 0 && stage_ == 0; }
  bool is_last(int chunk) const { return number_of(chunk) + 1 == static_cast<int>(layout_.blocks.size()); }
  // Index of the virtual stage.
  int number_of(int chunk) const { return chunk * layout_.request.stages + stage_; }

  // `inputs` with requires_grad get gradients in backward. Returns what the next stage needs.
  const Tensors& forward(int chunk, int micro, Tensors inputs);
  // Turns the last stage's outputs into `weight` times their loss. Returns the loss, detached.
  torch::Tensor finish(int chunk, int micro, const torch::Tensor& target, double weight);
  // `gradients` of the differentiable outputs, in order; none on the last stage. Returns those of the
  // differentiable inputs. If the schedule has a separate pass for them, gradients of weights are computed in
  // weight().
  Tensors backward(int chunk, int micro, const Tensors& gradients);
  void weight(int chunk, int micro);
  // Without a graph; keeps nothing.
  Tensors evaluate(int chunk, const Tensors& inputs);

  // Micro-batches (per chunk) that wait for their backward pass.
  size_t under_way() const { return under_way_.size(); }

 private:
  struct Pass {
    Tensors inputs;
    Tensors outputs;
    torch::Tensor loss;
    std::unique_ptr<compute::DeferredGradients> weights;  // receives their gradients
  };
  Pass take(int chunk, int micro);

  const models::Model& model_;
  const optim::GradScaler& scaler_;
  const PipelineLayout& layout_;
  int stage_;
  StageRunnerOptions options_;
  std::vector<std::vector<RecomputeFunction>> blocks_;   // of each chunk
  std::vector<std::vector<compute::Segment>> segments_;  // of each chunk
  std::vector<torch::Tensor> batch_counters_;
  std::map<std::pair<int, int>, Pass> under_way_;  // by chunk and micro-batch
  std::map<std::pair<int, int>, std::unique_ptr<compute::DeferredGradients>> put_off_;
};

}  // namespace yoke::parallel
