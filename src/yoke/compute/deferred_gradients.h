// Weight gradients that are computed later than those of the inputs, for pipelines that fill their bubbles
// with them (Qi et al. 2023).
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace yoke::compute {

class DeferredGradients {
 public:
  void add(const torch::Tensor& parameter, std::function<torch::Tensor()> gradient) {
    list_.emplace_back(parameter, std::move(gradient));
  }
  // Computes them, in the order of their backward pass, and adds them to the parameters' gradients.
  void run();
  bool empty() const { return list_.empty(); }

  // While it lives, linear layers and convolutions on this thread put the gradients of their weights off, in
  // passes whose forward and backward are both under it. Other layers do not: their gradients come at once.
  class Use {
   public:
    explicit Use(DeferredGradients* gradients);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    DeferredGradients* before_;
  };

 private:
  std::vector<std::pair<torch::Tensor, std::function<torch::Tensor()>>> list_;
};

// Takes the gradient of `weight` where gradients are put off on this thread and it is a parameter itself.
// False: the caller computes it now.
bool defer_gradient(const torch::Tensor& weight, std::function<torch::Tensor()> gradient);

// Whether layers without a backward of their own must use one, so that their weights' gradients can wait. Not
// under autocast, which computes with copies of them.
bool defers_gradients(const torch::Tensor& weight);

}  // namespace yoke::compute
