// Weight gradients apart from those of the inputs: later, for pipelines that fill their bubbles with them (Qi
// et al. 2023), or at once but straight into the sum over micro-batches, which saves a pass over it.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace yoke::compute {

class DeferredGradients {
 public:
  // `at_once`: nothing waits for run(); gradients are added to their sums in backward.
  explicit DeferredGradients(bool at_once = false) : at_once_(at_once) {}

  // Computes those that wait, in the order of their backward pass, and adds them to the parameters'
  // gradients.
  void run();

  // While it lives, linear layers and convolutions on this thread give the gradients of their weights here,
  // in passes whose forward and backward are both under it. Other layers do not: theirs come by autograd.
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

// Has `add` called, now or later, where somebody on this thread takes the gradient of `weight` and it is a
// parameter itself. False: the caller returns the gradient to autograd.
bool take_gradient(const torch::Tensor& weight, std::function<void()> add);

// Whether layers without a backward of their own must use one, so that their weights' gradients can be taken.
// Not under autocast, which computes with copies of them.
bool takes_gradients(const torch::Tensor& weight);
// Whether whoever takes them adds them in backward.
bool takes_at_once();

// The parameter's gradient grows by left * right, or by `gradient`.
void add_product_to_gradient(torch::Tensor weight, const torch::Tensor& left, const torch::Tensor& right);
void add_to_gradient(torch::Tensor weight, const torch::Tensor& gradient);

}  // namespace yoke::compute
