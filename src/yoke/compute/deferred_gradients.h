// Weight gradients separate from input gradients: deferred, for pipelines that fill their bubbles with them
// (Qi et al. 2023), or immediate but accumulated directly into the sum over micro-batches, which saves a pass
// over it.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace yoke::compute {

class DeferredGradients {
 public:
  // `at_once`: gradients are added to their sums in backward; run() has nothing to do.
  explicit DeferredGradients(bool at_once = false) : at_once_(at_once) {}

  // Computes the deferred gradients, in the order of their backward pass, and adds them to the parameters'
  // gradients.
  void run();

  // While it exists, linear layers and convolutions on this thread pass the gradients of their weights here,
  // if both forward and backward run under it. Other layers do not: theirs are computed by autograd.
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
  friend bool takes_at_once();
  friend bool take_gradient(const torch::Tensor& weight, std::function<void()> add);
  bool at_once_;
  std::vector<std::function<void()>> list_;
};

// Calls `add`, now or later, if a DeferredGradients is active on this thread and `weight` is a parameter
// itself. False: the caller returns the gradient to autograd.
bool take_gradient(const torch::Tensor& weight, std::function<void()> add);

// Whether layers without a backward of their own must use one, so that the gradients of their weights can be
// deferred. Not under autocast, which computes with copies of them.
bool takes_gradients(const torch::Tensor& weight);
// Whether the active DeferredGradients adds them in backward.
bool takes_at_once();

// Adds left * right, or `gradient`, to the parameter's gradient.
void add_product_to_gradient(torch::Tensor weight, const torch::Tensor& left, const torch::Tensor& right);
void add_to_gradient(torch::Tensor weight, const torch::Tensor& gradient);

}  // namespace yoke::compute
