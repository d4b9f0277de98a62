// How one training step is carried out on the workers at hand.
//
// Three verbs: acquire (make parameters current), compute (forward, backward), commit (combine, update).
// The engine calls them in this order, compute once for each accumulated micro-batch. One thread.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace yoke::parallel {

// What compute() gives back. Scalars stay on the device, so that reading them is the caller's choice.
struct StepResult {
  torch::Tensor loss;  // mean over the samples, detached
  double forward_seconds = 0;
  double backward_seconds = 0;
};

struct CommitResult {
  torch::Tensor grad_norm;   // undefined where it was not computed
  bool skipped = false;      // fp16: an inf was found, parameters did not move
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void acquire() = 0;
  // Forward and backward of one micro-batch, adding `weight` times its gradient.
  virtual StepResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target, double weight) = 0;
  // Combines gradients and moves the parameters with learning rate `lr`.
  virtual CommitResult commit(double lr) = 0;
};

}  // namespace yoke::parallel
