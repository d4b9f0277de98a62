// Tells when autograd has accumulated a gradient of a parameter.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

namespace yoke::parallel {

// Hooks on the gradient accumulators of parameters, removed by the destructor.
class GradientHooks {
 public:
  GradientHooks() = default;
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // `on_gradient` runs inside backward(), after every accumulation into parameter.grad(): once, or once for
  // each recomputed part that uses the parameter. What it throws, backward() throws.
  void add(const torch::Tensor& parameter, std::function<void()> on_gradient);

 private:
  struct Installed {
    std::shared_ptr<torch::autograd::Node> accumulator;
    uintptr_t key = 0;
  };
  std::vector<Installed> installed_;
};

}  // namespace yoke::parallel
