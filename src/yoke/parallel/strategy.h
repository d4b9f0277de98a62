// How one training step is carried out on the workers at hand.
//
// Three verbs: acquire (make parameters current), compute (forward, backward), commit (combine, update).
// The engine calls them in this order, compute once for each accumulated micro-batch. One thread.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

namespace yoke::parallel {

// What compute() gives back. Scalars stay on the device, so that reading them is the caller's choice.
struct ComputeResult {
  torch::Tensor loss;  // mean over the samples, detached
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// One of the batches whose gradients make up a step.
struct MicroBatch {
  double weight = 1;  // of its gradient
  bool last = true;   // of the step: what replicas have to tell each other is told with it
  double lr = 0;      // of the step, for strategies that update while they compute
};

// What concerns all ranks: each tells its own, and hears what holds for all.
struct StepNews {
  torch::Tensor loss;   // mean over the samples of the step; to be read after settle()
  int stop_signal = 0;  // 0: go on
};

// What was moved between ranks in a step.
struct Communication {
  double seconds = 0;  // under way
  double exposed = 0;  // and waited for
  struct Part {
    double started = 0;  // now_seconds()
    double ended = 0;
  };
  std::vector<Part> buckets;
};

struct CommitOptions {
  double lr = 0;
  // Measure the norm of the gradients, and leave the parameters alone when it is not finite.
  bool measure_norm = false;
};

struct CommitResult {
  std::optional<double> grad_norm;  // before clipping
  bool updated = true;              // false: gradients were not finite, parameters did not move
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void acquire() = 0;
  // Forward and backward of one micro-batch (tensors on the host), adding its weight times its gradient.
  virtual ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                const MicroBatch& micro) = 0;
  // Once a step, between the last compute and commit: all ranks of the step come to the same.
  virtual StepNews agree(const StepNews& here) { return here; }
  // Returns when every loss that agree() gave can be read.
  virtual void settle() {}
  // Finishes what runs on from step to step, on all ranks: before parameters are looked at, and at the end.
  virtual void drain() {}
  // Of the last step; empty where there is none to talk to.
  virtual std::optional<Communication> communication() const { return std::nullopt; }
  // Gradient noise scale (critical batch size) in samples, where it is measured.
  virtual std::optional<double> noise_scale() const { return std::nullopt; }
  // Combines gradients and moves the parameters.
  virtual CommitResult commit(const CommitOptions& options) = 0;
  // The gradients of the step, whole, in the order of the model's parameters; between agree() and commit().
  // Where they are spread over ranks it is collective, and rank 0 alone gets them. For comparing: slow.
  // Empty where nobody has them together.
  virtual std::vector<torch::Tensor> gradients() { return {}; }
  // Name of the first parameter whose gradient is not finite. For messages: slow.
  virtual std::optional<std::string> first_non_finite_gradient() = 0;
  // Where somebody else counts: steps and minibatches of all workers together, so far.
  struct Progress {
    int64_t step = 0;
    int64_t minibatches = 0;
    int64_t samples = 0;  // of those
    bool over = false;    // there is no more work
  };
  virtual std::optional<Progress> progress() const { return std::nullopt; }
  // The scale of fp16 losses, where there is one.
  virtual std::optional<double> loss_scale() const = 0;
};

}  // namespace yoke::parallel
