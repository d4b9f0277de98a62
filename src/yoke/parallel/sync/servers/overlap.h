// Moves the ranges of a worker while it computes: a block waits for its own parameters only, and the gradient
// of a range leaves when backward has completed it.
//
// The first backward() only counts how many gradients each parameter gets (several, if recomputed parts share
// it); its gradient leaves at the end. A parameter without a gradient holds its ranges back until the end of
// backward.
#pragma once

#include <functional>
#include <vector>

#include "yoke/models/model.h"
#include "yoke/parallel/common/gradient_hooks.h"
#include "yoke/ps/learner.h"

namespace yoke::parallel {

// One thread, which also runs backward().
class Overlap {
 public:
  // `parameters`: in the order of the learner's vector. `gather(i)`: brings the gradient of parameter i to
  // its place in the vector that is pushed; zeros if there is none. All must outlive it.
  Overlap(const models::Model& model, const std::vector<torch::Tensor>& parameters, ps::Learner& learner,
          std::function<void(size_t)> gather);

  // Returns once the parameters of this block have arrived. Requires begin_pull() before.
  void await_block(size_t block);
  // Announces the gradient that the next backward() computes.
  void begin_backward(const ps::Gradient& gradient, void* parameters);
  // Sends what is left. False: a part of the gradient is not finite and was not sent.
  bool end_backward();

 private:
  void map_ranges(const std::vector<torch::Tensor>& parameters);
  void map_blocks(const models::Model& model, const std::vector<torch::Tensor>& parameters);
  void on_gradient(size_t parameter);
  void complete(size_t range);

  ps::Learner& learner_;
  std::function<void(size_t)> gather_;
  std::vector<std::vector<size_t>> ranges_of_parameter_, ranges_of_block_;
  std::vector<size_t> parameters_in_range_;
  std::vector<int> expected_;  // gradients of each parameter in a backward(); empty: not known yet
  // Of the backward() that runs:
  bool watching_ = false;
  bool finite_ = true;
  std::vector<int> arrived_;     // by parameter
  std::vector<size_t> missing_;  // by range: parameters without all their gradients
  GradientHooks hooks_;
};

}  // namespace yoke::parallel
