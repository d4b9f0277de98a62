// Moves the ranges of a worker while it computes: a block waits for its own parameters only, and the gradient
// of a range leaves when backward has completed it.
//
// On a GPU the vectors that move are on the host: a block's parameters are delivered once they are there, and
// a gradient leaves once its copy has arrived, which no kernel waits for.
//
// The first backward() only counts how many gradients each parameter gets (several, if recomputed parts share
// it); its gradient leaves at the end. A parameter without a gradient holds its ranges back until the end of
// backward.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "yoke/models/model.h"
#include "yoke/parallel/common/gradient_hooks.h"
#include "yoke/parallel/sync/servers/host_copies.h"
#include "yoke/ps/learner.h"

namespace yoke::parallel {

// One thread at a time: that of the step, or that of its backward().
class Overlap {
 public:
  // Between the vectors that move and the model, by parameter.
  struct Moves {
    std::function<void(size_t)> gather;   // its gradient to the vector, by `copies`; zeros if there is none
    std::function<void(size_t)> deliver;  // its value to the model; empty: it is there already
  };
  // `parameters`: in the order of the learner's vector. All must outlive it.
  Overlap(const models::Model& model, const std::vector<torch::Tensor>& parameters, ps::Learner& learner,
          HostCopies& copies, Moves moves);

  // Starts to bring `parameters` to the version of the current work.
  void begin_pull(void* parameters);
  // Returns once the model has the parameters of this block. Requires begin_pull() before.
  void await_block(size_t block);
  // Likewise of all blocks. False: the current work was cancelled, and the model has a part of them.
  bool end_pull();
  // Announces the gradient that the next backward() computes.
  void begin_backward(const ps::Gradient& gradient, void* parameters);
  // Sends what is left. False: a part of the gradient is not finite and was not sent.
  bool end_backward();

 private:
  void map_ranges(const std::vector<torch::Tensor>& parameters);
  void map_blocks(const models::Model& model, const std::vector<torch::Tensor>& parameters);
  void on_gradient(size_t parameter);
  void complete(size_t range);
  void push_arrived(bool wait);
  void deliver(size_t parameter);

  struct Completed {
    size_t range;
    HostCopies::Mark copied;
  };
  ps::Learner& learner_;
  HostCopies& copies_;
  Moves moves_;
  std::vector<std::vector<size_t>> ranges_of_parameter_, ranges_of_block_, parameters_of_block_;
  std::vector<bool> delivered_;  // by parameter, of the current pull
  std::vector<size_t> parameters_in_range_;
  std::vector<int> expected_;  // gradients of each parameter in a backward(); empty: not known yet
  // Of the backward() that runs:
  bool watching_ = false;
  bool finite_ = true;
  std::vector<int> arrived_;     // by parameter
  std::vector<size_t> missing_;  // by range: parameters without all their gradients
  std::deque<Completed> leaving_;
  GradientHooks hooks_;
};

}  // namespace yoke::parallel
