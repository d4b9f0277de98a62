// Optimizers, with many tensors per operator call.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "yoke/optim/options.h"

namespace yoke::optim {

using NamedTensor = std::pair<std::string, torch::Tensor>;

// The loss, for optimizers that evaluate it several times per step.
struct LossFunction {
  // Runs forward and backward and returns the loss: with replicas the mean over them, on all of them.
  std::function<torch::Tensor()> evaluate;
  // With replicas: makes a value that each has computed itself equal on all of them. Sums may differ in the
  // last bits between machines, but decisions based on them must not. Empty: single device.
  std::function<torch::Tensor(const torch::Tensor&)> same_everywhere;

  LossFunction() = default;
  template <class Evaluate>
  LossFunction(Evaluate loss,  // NOLINT: meant to convert
               std::function<torch::Tensor(const torch::Tensor&)> same = {})
      : evaluate(std::move(loss)), same_everywhere(std::move(same)) {}
};

// Results equal those of torch.optim's optimizers of the same name. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update with learning rate `lr`. Parameters without a gradient, and their state, are unchanged. Only
  // L-BFGS evaluates `loss`, each time with absent gradients.
  void step(double lr, const LossFunction& loss = {}) {
    set_lr(lr);
    update(loss);
  }

  // The two halves of step(), for CUDA graphs: update() does not synchronise and may be captured; set_lr()
  // between replays changes the learning rate they use. L-BFGS and sparse gradients depend on values and
  // cannot be captured.
  virtual void set_lr(double lr) = 0;
  virtual void update(const LossFunction& loss) = 0;

  // Gradients become absent (not zero), so that the first backward of a step writes instead of adding.
  virtual void zero_grad() = 0;

  // Everything a checkpoint must hold besides the parameters, in a fixed order, by name
  // ("momentum/conv1.weight"). The tensors are live: copying into them restores the state.
  virtual std::vector<NamedTensor> state() = 0;
};

// `parameters`: name and leaf tensor, all on one device. Throws ConfigError for an unknown optimizer and
// contradictory options. Low-precision parameters (bf16, fp16) get fp32 master copies, in state() as
// "master/<name>", copied from the parameters now: load weights first, or restore the masters with them.
std::unique_ptr<Optimizer> make(const OptimizerOptions& options, std::vector<NamedTensor> parameters);

}  // namespace yoke::optim
